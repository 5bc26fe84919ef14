package deployment

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// fenceposts returns maxSurge and maxUnavailable as numbers of pods. Surge rounds up and
// unavailable rounds down; they are never both 0, since the rollout could not progress.
func fenceposts(d *appsv1.Deployment) (surge, unavailable int32) {
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || d.Spec.Strategy.RollingUpdate == nil {
		return 0, 0
	}
	r := d.Spec.Strategy.RollingUpdate
	surge = pods(r.MaxSurge, *d.Spec.Replicas, true)
	unavailable = pods(r.MaxUnavailable, *d.Spec.Replicas, false)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, min(unavailable, *d.Spec.Replicas)
}

func pods(v *intstr.IntOrString, of int32, up bool) int32 {
	n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(v, intstr.FromInt32(0)), int(of), up)
	if err != nil {
		return 0 // the server refuses such values
	}
	return int32(n)
}

func maxSurge(d *appsv1.Deployment) int32 {
	surge, _ := fenceposts(d)
	return surge
}

func maxUnavailable(d *appsv1.Deployment) int32 {
	_, unavailable := fenceposts(d)
	return unavailable
}

// growCurrent returns the new size of the replica set of the current template: as large as
// the surge allows, given the size of all sets.
func growCurrent(d *appsv1.Deployment, current int32, all []*appsv1.ReplicaSet) int32 {
	want := *d.Spec.Replicas
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || current >= want {
		return want
	}
	room := want + maxSurge(d) - presentReplicas(all)
	return current + max(0, min(room, want-current))
}

// shrinkOld returns the new sizes of the old replica sets, as small as the required
// availability allows: it removes unavailable pods first, then those of the oldest sets.
func shrinkOld(d *appsv1.Deployment, current *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) map[string]int32 {
	all := append(slices.Clone(old), current)
	keep := *d.Spec.Replicas - maxUnavailable(d)
	notUp := *current.Spec.Replicas - current.Status.AvailableReplicas
	budget := specReplicas(all) - keep - notUp
	to := map[string]int32{}
	if budget <= 0 {
		return to
	}
	size := func(rs *appsv1.ReplicaSet) int32 {
		if n, ok := to[rs.Name]; ok {
			return n
		}
		return *rs.Spec.Replicas
	}
	for _, rs := range oldestFirst(old) {
		if n := min(budget, *rs.Spec.Replicas-rs.Status.AvailableReplicas); n > 0 {
			to[rs.Name] = *rs.Spec.Replicas - n
			budget -= n
		}
	}
	spare := keptReplicas(all) - keep
	for _, rs := range oldestFirst(old) {
		if n := min(spare, size(rs)); n > 0 {
			to[rs.Name] = size(rs) - n
			spare -= n
		}
	}
	return to
}

// resize follows a change of spec.replicas: it scales the only active replica set, or, during
// a rollout, distributes the difference over the sets in proportion to their sizes.
func resize(d *appsv1.Deployment, current *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) map[string]int32 {
	all := slices.Clone(old)
	if current != nil {
		all = append(all, current)
	}
	active := activeOnly(all)
	to := map[string]int32{}
	if only := activeOrLatest(active, current, old); only != nil {
		to[only.Name] = *d.Spec.Replicas
		return to
	}
	if saturated(d, current) {
		for _, rs := range activeOnly(old) {
			to[rs.Name] = 0
		}
		return to
	}
	if d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		return proportional(d, active)
	}
	return to
}

func proportional(d *appsv1.Deployment, active []*appsv1.ReplicaSet) map[string]int32 {
	allowed := int32(0)
	if *d.Spec.Replicas > 0 {
		allowed = *d.Spec.Replicas + maxSurge(d)
	}
	add := allowed - specReplicas(active)
	// Larger sets first; of equal sets the newer when growing, the older when shrinking.
	active = slices.Clone(active)
	slices.SortStableFunc(active, func(a, b *appsv1.ReplicaSet) int {
		age := a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
		if add > 0 {
			age = -age
		}
		return cmp.Or(cmp.Compare(*b.Spec.Replicas, *a.Spec.Replicas), age, compareNames(a, b))
	})
	to := map[string]int32{}
	left := add
	for _, rs := range active {
		share := int32(0)
		if left != 0 && *rs.Spec.Replicas != 0 {
			share = fraction(d, rs)
			if add > 0 {
				share = min(share, left)
			} else {
				share = max(share, left)
			}
		}
		to[rs.Name] = *rs.Spec.Replicas + share
		left -= share
	}
	if len(active) > 0 { // remainder of the rounding
		to[active[0].Name] = max(0, to[active[0].Name]+left)
	}
	return to
}

// fraction returns the change of rs when the deployment changes from the size for which rs
// was last scaled to its current size.
func fraction(d *appsv1.Deployment, rs *appsv1.ReplicaSet) int32 {
	if *d.Spec.Replicas == 0 {
		return -*rs.Spec.Replicas
	}
	before, err := strconv.ParseInt(rs.Annotations[maxAnnotation], 10, 32)
	if err != nil || before == 0 {
		before = int64(d.Status.Replicas)
	}
	if before == 0 {
		return 0
	}
	now := float64(*rs.Spec.Replicas) * float64(*d.Spec.Replicas+maxSurge(d)) / float64(before)
	return int32(math.Round(now)) - *rs.Spec.Replicas
}

// resized reports whether spec.replicas changed since the active sets were scaled.
func resized(d *appsv1.Deployment, all []*appsv1.ReplicaSet) bool {
	for _, rs := range activeOnly(all) {
		have, ok := rs.Annotations[desiredAnnotation]
		if ok && have != strconv.Itoa(int(*d.Spec.Replicas)) {
			return true
		}
	}
	return false
}

func activeOrLatest(active []*appsv1.ReplicaSet, current *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) *appsv1.ReplicaSet {
	switch {
	case len(active) == 1:
		return active[0]
	case len(active) > 1:
		return nil
	case current != nil:
		return current
	case len(old) > 0:
		byAge := oldestFirst(old)
		return byAge[len(byAge)-1]
	}
	return nil
}

// saturated reports whether the set of the current template has all available replicas.
func saturated(d *appsv1.Deployment, current *appsv1.ReplicaSet) bool {
	return current != nil && current.Annotations[desiredAnnotation] == strconv.Itoa(int(*d.Spec.Replicas)) &&
		*current.Spec.Replicas == *d.Spec.Replicas && current.Status.AvailableReplicas == *d.Spec.Replicas
}

func activeOnly(sets []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	var out []*appsv1.ReplicaSet
	for _, rs := range sets {
		if *rs.Spec.Replicas > 0 {
			out = append(out, rs)
		}
	}
	return out
}

func specReplicas(sets []*appsv1.ReplicaSet) (n int32) {
	for _, rs := range sets {
		n += *rs.Spec.Replicas
	}
	return n
}

func statusReplicas(sets []*appsv1.ReplicaSet) (n int32) {
	for _, rs := range sets {
		n += rs.Status.Replicas
	}
	return n
}

func availableReplicas(sets []*appsv1.ReplicaSet) (n int32) {
	for _, rs := range sets {
		n += rs.Status.AvailableReplicas
	}
	return n
}

// The status of a set that has just been made smaller still counts the pods that are to go.

// presentReplicas counts the pods that there are or will be.
func presentReplicas(sets []*appsv1.ReplicaSet) (n int32) {
	for _, rs := range sets {
		n += max(*rs.Spec.Replicas, rs.Status.Replicas)
	}
	return n
}

// keptReplicas counts the available pods that no set is to delete.
func keptReplicas(sets []*appsv1.ReplicaSet) (n int32) {
	for _, rs := range sets {
		n += min(*rs.Spec.Replicas, rs.Status.AvailableReplicas)
	}
	return n
}
