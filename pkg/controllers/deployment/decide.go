package deployment

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/controller/ownership"
)

// step is the next step of a rollout.
type step struct {
	Create   *appsv1.ReplicaSet   // for the current template
	Update   []change             // sizes and annotations
	Delete   []*appsv1.ReplicaSet // history beyond the limit
	Revision string               // the revision annotation to set, "" if d has it
	Status   appsv1.DeploymentStatus
	Recheck  time.Duration // time until the progress deadline, 0 if there is none
}

type change struct{ From, To *appsv1.ReplicaSet }

// decide returns the next step for d with its replica sets. oldPods reports whether pods of
// other templates still exist; decide calls it for the Recreate strategy only.
func decide(d *appsv1.Deployment, sets []*appsv1.ReplicaSet, oldPods func(old []*appsv1.ReplicaSet) bool, now time.Time) step {
	current, old := split(d, sets)
	s := step{Status: count(d, current, sets, now)}
	if d.DeletionTimestamp != nil {
		return s
	}
	var sizes map[string]int32
	switch {
	case d.Spec.Paused:
		sizes = resize(d, current, old)
		pause(d, &s.Status, now)
	case resized(d, sets) && len(resize(d, current, old)) > 0:
		sizes = resize(d, current, old)
		resume(&s.Status, now)
	case d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		sizes = s.recreate(d, current, old, oldPods)
		progress(d, &s.Status, current, sets, now)
	default:
		sizes = s.roll(d, current, old)
		progress(d, &s.Status, current, sets, now)
	}
	if s.Create != nil {
		created(d, &s.Status, s.Create.Name, now)
	}
	s.Update = updates(d, current, old, sizes)
	if current != nil || s.Create != nil {
		s.Revision = revision(d, current, old)
	}
	if d.Spec.Paused || complete(d, &s.Status) {
		s.Delete = history(d, old)
	}
	s.Recheck = untilDeadline(d, &s.Status, now)
	return s
}

// roll plans a RollingUpdate step: scale up the current set as far as the surge allows; once
// it cannot grow, scale down the old sets as far as availability allows.
func (s *step) roll(d *appsv1.Deployment, current *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) map[string]int32 {
	if current == nil {
		s.Create = newSet(d, old, growCurrent(d, 0, old))
		return nil
	}
	if to := growCurrent(d, *current.Spec.Replicas, append(slices.Clone(old), current)); to != *current.Spec.Replicas {
		return map[string]int32{current.Name: to}
	}
	return shrinkOld(d, current, old)
}

// recreate plans a Recreate step: scale the old sets to 0, wait until their last pod is gone,
// then scale up the current set.
func (s *step) recreate(d *appsv1.Deployment, current *appsv1.ReplicaSet, old []*appsv1.ReplicaSet, oldPods func([]*appsv1.ReplicaSet) bool) map[string]int32 {
	to := map[string]int32{}
	for _, rs := range activeOnly(old) {
		to[rs.Name] = 0
	}
	if len(to) > 0 || statusReplicas(old) > 0 || oldPods(old) {
		return to
	}
	if current == nil {
		s.Create = newSet(d, old, *d.Spec.Replicas)
	} else {
		to[current.Name] = *d.Spec.Replicas
	}
	return to
}

// updates returns the replica sets to change: those of the wrong size and, for the current
// set, wrong annotations or minReadySeconds.
func updates(d *appsv1.Deployment, current *appsv1.ReplicaSet, old []*appsv1.ReplicaSet, to map[string]int32) []change {
	var out []change
	add := func(rs *appsv1.ReplicaSet) {
		next := rs.DeepCopy()
		if n, ok := to[rs.Name]; ok && (n != *rs.Spec.Replicas || (n > 0 && !sized(d, rs))) {
			next.Spec.Replicas = &n
			next.Annotations = maps.Clone(next.Annotations)
			if next.Annotations == nil {
				next.Annotations = map[string]string{}
			}
			maps.Copy(next.Annotations, sizes(d))
		}
		if rs == current {
			next.Annotations = currentAnnotations(d, next.Annotations, lastRevision(old)+1, false)
			next.Spec.MinReadySeconds = d.Spec.MinReadySeconds
		}
		if *next.Spec.Replicas != *rs.Spec.Replicas || next.Spec.MinReadySeconds != rs.Spec.MinReadySeconds ||
			!maps.Equal(next.Annotations, rs.Annotations) {
			out = append(out, change{rs, next})
		}
	}
	if current != nil {
		add(current)
	}
	for _, rs := range oldestFirst(old) {
		add(rs)
	}
	return out
}

// revision returns the value of the revision annotation that d lacks, "" if it has it.
func revision(d *appsv1.Deployment, current *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) string {
	want := lastRevision(old) + 1
	if current != nil {
		want = max(want, revisionOf(current))
	}
	if text := strconv.FormatInt(want, 10); d.Annotations[revisionAnnotation] != text {
		return text
	}
	return ""
}

// newSet returns the replica set for d's current template.
func newSet(d *appsv1.Deployment, old []*appsv1.ReplicaSet, replicas int32) *appsv1.ReplicaSet {
	hash := hashOf(&d.Spec.Template, d.Status.CollisionCount)
	template := d.Spec.Template.DeepCopy()
	template.Labels = withHash(template.Labels, hash)
	selector := d.Spec.Selector.DeepCopy()
	selector.MatchLabels = withHash(selector.MatchLabels, hash)
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: d.Name + "-" + hash, Namespace: d.Namespace, Labels: template.Labels,
			Annotations:     currentAnnotations(d, nil, lastRevision(old)+1, true),
			OwnerReferences: []metav1.OwnerReference{ownership.Reference(d, kind)},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas, MinReadySeconds: d.Spec.MinReadySeconds,
			Selector: selector, Template: *template,
		},
	}
}

func withHash(labels map[string]string, hash string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	out[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	return out
}

// history returns the old sets beyond the revision history limit, oldest revision first. It
// leaves out sets that have, or may still have, pods.
func history(d *appsv1.Deployment, old []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	if d.Spec.RevisionHistoryLimit == nil {
		return nil
	}
	var standing []*appsv1.ReplicaSet
	for _, rs := range old {
		if rs.DeletionTimestamp == nil {
			standing = append(standing, rs)
		}
	}
	surplus := len(standing) - int(*d.Spec.RevisionHistoryLimit)
	if surplus <= 0 {
		return nil
	}
	slices.SortFunc(standing, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(cmp.Compare(revisionOf(a), revisionOf(b)), compareNames(a, b))
	})
	var out []*appsv1.ReplicaSet
	for _, rs := range standing[:surplus] {
		if rs.Status.Replicas == 0 && *rs.Spec.Replicas == 0 && rs.Status.ObservedGeneration >= rs.Generation {
			out = append(out, rs)
		}
	}
	return out
}
