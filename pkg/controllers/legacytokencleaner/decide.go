package legacytokencleaner

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Labels of Secrets; their values are days in UTC.
const (
	lastUsed     = "kubernetes.io/legacy-token-last-used"
	invalidSince = "kubernetes.io/legacy-token-invalid-since"
)

// view is what the controller sees of one Secret.
type view struct {
	*corev1.Secret
	account *corev1.ServiceAccount // nil: it does not exist
	mounted bool                   // a pod refers to the Secret
}

type action string

const (
	keep       action = "keep"
	invalidate action = "invalidate"
	remove     action = "remove"
)

// tracked reports whether the use of tokens has been recorded for all of the period: since
// is the first day of it, which may have been recorded in part.
func tracked(since string, period time.Duration, now time.Time) bool {
	day, err := time.Parse(time.DateOnly, since)
	return err == nil && day.AddDate(0, 0, 1).Before(now.Add(-period))
}

// decide says what to do with a Secret. A Secret that was not used for the period becomes
// invalid, and is deleted if it stays so for another period.
func decide(s view, period time.Duration, now time.Time) action {
	before := now.Add(-period)
	limit := before.UTC().Format(time.DateOnly)
	day := func(label string) (value string, valid bool) {
		value = s.Labels[label]
		_, err := time.Parse(time.DateOnly, value)
		return value, err == nil
	}
	used, known := day(lastUsed)
	_, labelled := s.Labels[lastUsed]
	switch {
	case s.DeletionTimestamp != nil || !s.CreationTimestamp.Time.Before(before):
		return keep
	case labelled && (!known || used >= limit): // what cannot be read says nothing
		return keep
	case !generated(s) || s.mounted:
		return keep
	}
	since, valid := day(invalidSince)
	switch {
	case !valid:
		return invalidate
	case since >= limit:
		return keep
	}
	return remove
}

// generated reports whether a controller made the Secret for its account: the account then
// refers to it.
func generated(s view) bool {
	return s.account != nil && string(s.account.UID) == s.Annotations[corev1.ServiceAccountUIDKey] &&
		slices.ContainsFunc(s.account.Secrets, func(ref corev1.ObjectReference) bool { return ref.Name == s.Name })
}

// secretsOf returns the names of the Secrets that a pod refers to.
func secretsOf(p *corev1.Pod) (names []string) {
	add := func(name string) {
		if name != "" {
			names = append(names, name)
		}
	}
	for _, ref := range p.Spec.ImagePullSecrets {
		add(ref.Name)
	}
	for i := range p.Spec.Volumes {
		switch v := &p.Spec.Volumes[i]; {
		case v.Secret != nil:
			add(v.Secret.SecretName)
		case v.CSI != nil && v.CSI.NodePublishSecretRef != nil:
			add(v.CSI.NodePublishSecretRef.Name)
		case v.Projected != nil:
			for _, source := range v.Projected.Sources {
				if source.Secret != nil {
					add(source.Secret.Name)
				}
			}
		}
	}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			environment(&list[i], add)
		}
	}
	return names
}

func environment(c *corev1.Container, add func(string)) {
	for _, from := range c.EnvFrom {
		if from.SecretRef != nil {
			add(from.SecretRef.Name)
		}
	}
	for _, v := range c.Env {
		if v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil {
			add(v.ValueFrom.SecretKeyRef.Name)
		}
	}
}
