package podsecurity

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/pod-security-admission/api"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

// namespace validates a namespace's labels, and warns of existing pods that
// violate the new ones.
func (p *plugin) namespace(ctx context.Context, a *admission.Attributes, ns *corev1.Namespace) error {
	if a.Subresource != "" {
		return nil
	}
	policy, errs := api.PolicyToEvaluate(ns.Labels, p.cfg.Defaults)
	invalid := apierrors.NewInvalid(a.Kind.GroupKind(), ns.Name, errs)
	if a.Operation == admission.Create {
		if len(errs) > 0 {
			return invalid
		}
		p.warnExempt(ctx, ns, policy)
		return nil
	}
	before, errsBefore := api.PolicyToEvaluate(a.Old.(*corev1.Namespace).Labels, p.cfg.Defaults)
	if len(errs) > 0 && !apiequality.Semantic.DeepEqual(errs, errsBefore) {
		return invalid // labels that were invalid before do not block other changes
	}
	if !stricter(policy.Enforce, before.Enforce) {
		return nil
	}
	if p.warnExempt(ctx, ns, policy) {
		return nil
	}
	for _, text := range p.wouldBeRefused(ctx, ns.Name, policy.Enforce) {
		request.Warn(ctx, text)
	}
	return nil
}

// stricter reports whether now may refuse pods that before admits.
func stricter(now, before api.LevelVersion) bool {
	switch {
	case now == before, now.Level == api.LevelPrivileged:
		return false
	case now.Version == before.Version:
		return api.CompareLevels(now.Level, before.Level) > 0
	}
	return true
}

// warnExempt reports whether the namespace is exempt, and warns that its labels
// have no effect.
func (p *plugin) warnExempt(ctx context.Context, ns *corev1.Namespace, policy api.Policy) bool {
	if !slices.Contains(p.cfg.Exempt.Namespaces, ns.Name) {
		return false
	}
	if policy.FullyPrivileged() || policy.Equivalent(&p.cfg.Defaults) {
		return true
	}
	var said []string
	for _, mode := range []struct {
		name string
		std  api.LevelVersion
	}{{"enforce", policy.Enforce}, {"audit", policy.Audit}, {"warn", policy.Warn}} {
		_, level := ns.Labels[api.AuditAnnotationPrefix+mode.name]
		_, version := ns.Labels[api.AuditAnnotationPrefix+mode.name+"-version"]
		if mode.std.Level != api.LevelPrivileged && (level || version) {
			said = append(said, mode.name+"="+mode.std.String())
		}
	}
	request.Warn(ctx, fmt.Sprintf("namespace %q is exempt from Pod Security, and the policy (%s) will be ignored", ns.Name, strings.Join(said, ", ")))
	return true
}

// The limits of the check of existing pods, so that it does not delay the
// request in a large namespace.
const (
	maxPods  = 3000
	maxCheck = time.Second
)

// wouldBeRefused returns warnings about existing pods that std does not allow.
func (p *plugin) wouldBeRefused(ctx context.Context, namespace string, std api.LevelVersion) []string {
	ctx, cancel := context.WithTimeout(ctx, checkTime(ctx))
	defer cancel()
	list, err := p.Objects.List(ctx, corev1.SchemeGroupVersion.WithResource("pods"), namespace)
	if err != nil {
		return []string{"failed to list pods while checking new PodSecurity enforce level"}
	}
	pods := p.distinctFirst(list)
	checked := min(len(pods), maxPods)
	byReason := map[string][]string{}
	for i, pod := range pods[:checked] {
		if found := p.check(std, &pod.ObjectMeta, &pod.Spec); !found.Allowed {
			byReason[found.ForbiddenReason()] = append(byReason[found.ForbiddenReason()], pod.Name)
		}
		if ctx.Err() != nil {
			checked = i + 1
			break
		}
	}
	var out []string
	if checked < len(pods) {
		out = append(out, fmt.Sprintf("new PodSecurity enforce level only checked against the first %d of %d existing pods", checked, len(pods)))
	}
	if len(byReason) > 0 {
		out = append(out, fmt.Sprintf("existing pods in namespace %q violate the new PodSecurity enforce level %q", namespace, std))
	}
	var lines []string
	for reason, names := range byReason {
		lines = append(lines, slices.Min(names)+others(len(names)-1)+": "+reason)
	}
	slices.Sort(lines)
	return append(out, lines...)
}

// checkTime returns the time limit of the check: at most half of the request's
// remaining time.
func checkTime(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(maxCheck, time.Until(deadline)/2)
	}
	return maxCheck
}

func others(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return " (and 1 other pod)"
	}
	return fmt.Sprintf(" (and %d other pods)", n)
}

// distinctFirst returns the pods without those of exempt runtime classes,
// ordered so that one pod of each controller comes before its siblings, which
// are most likely equal.
func (p *plugin) distinctFirst(pods []scheme.Object) []*corev1.Pod {
	var first, siblings []*corev1.Pod
	seen := map[types.UID]bool{}
	for _, obj := range pods {
		pod := obj.(*corev1.Pod)
		if p.exemptClass(&pod.Spec) {
			continue
		}
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner != nil && seen[owner.UID] {
			siblings = append(siblings, pod)
			continue
		}
		if owner != nil {
			seen[owner.UID] = true
		}
		first = append(first, pod)
	}
	return append(first, siblings...)
}
