package statefulset

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	podstate "podium/pkg/controller/pods"
)

// state is a set and its pods at one moment.
type state struct {
	set             *appsv1.StatefulSet
	current, update string        // names of the revisions
	replicas        []*corev1.Pod // by ordinal, from the first; nil: the pod does not exist
	condemned       []*corev1.Pod // with ordinals outside the range, the highest first
	now             time.Time
}

// stateOf sorts the pods of a set by their ordinals.
func stateOf(set *appsv1.StatefulSet, pods []*corev1.Pod, current, update string, now time.Time) *state {
	s := &state{set: set, current: current, update: update, now: now, replicas: make([]*corev1.Pod, *set.Spec.Replicas)}
	for _, p := range pods {
		if i, ok := indexOf(set, p); ok {
			s.replicas[i] = p
		} else {
			s.condemned = append(s.condemned, p)
		}
	}
	slices.SortFunc(s.condemned, func(a, b *corev1.Pod) int {
		i, _ := indexOf(set, a)
		j, _ := indexOf(set, b)
		return cmp.Compare(j, i)
	})
	return s
}

// plan is the actions of one reconcile.
type plan struct {
	Create  []int // indexes of replicas
	Delete  []*corev1.Pod
	Recheck time.Duration // until a failed pod may be deleted; 0: no pod waits for that
}

// failedFor is how long a failed pod is kept: a pod that nodes refuse as soon as it is
// created would otherwise be created again as fast as the servers are.
const failedFor = 2 * time.Second

// decide returns the next actions: missing pods are created, failed ones deleted so that
// they are created again, surplus ones deleted, and pods of other revisions than the one
// they are due at deleted as far as the update strategy allows. OrderedReady takes one step
// at a time: all pods before a pod must be available, all pods after it gone.
func decide(s *state) plan {
	var p plan
	switch {
	case s.set.DeletionTimestamp != nil:
	case s.set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement:
		p = s.burst()
		p.Delete = append(p.Delete, s.outdated(p.Delete)...)
	default:
		var done bool
		if p, done = s.step(); done {
			p.Delete = s.outdated(nil)
		}
	}
	return p
}

// burst returns all that must be created and deleted to have the desired replicas.
func (s *state) burst() (p plan) {
	for i, pod := range s.replicas {
		switch {
		case pod == nil:
			p.Create = append(p.Create, i)
		case podstate.Terminal(pod) && pod.DeletionTimestamp == nil:
			s.recreate(&p, pod)
		}
	}
	for _, pod := range s.condemned {
		if pod.DeletionTimestamp == nil {
			p.Delete = append(p.Delete, pod)
		}
	}
	return p
}

// recreate deletes a terminal pod, which is then created again.
func (s *state) recreate(p *plan, pod *corev1.Pod) {
	if wait := pod.CreationTimestamp.Add(failedFor).Sub(s.now); wait > 0 {
		p.Recheck = max(p.Recheck, wait)
		return
	}
	p.Delete = append(p.Delete, pod)
}

// step returns the next step towards the desired replicas. done means that there is none.
func (s *state) step() (p plan, done bool) {
	for i, pod := range s.replicas {
		switch {
		case pod == nil:
			return plan{Create: []int{i}}, false
		case pod.DeletionTimestamp != nil:
			return plan{}, false
		case podstate.Terminal(pod):
			s.recreate(&p, pod)
			return p, false
		case !s.available(pod) && s.stuck(i):
			return plan{Delete: []*corev1.Pod{pod}}, false
		case !s.available(pod):
			return plan{}, false
		}
	}
	if len(s.condemned) == 0 {
		return plan{}, true
	}
	last := s.condemned[0]
	if last.DeletionTimestamp == nil && (s.available(last) || podstate.Terminal(last) || last == s.firstUnavailable()) {
		p.Delete = []*corev1.Pod{last}
	}
	return p, false
}

// firstUnavailable returns the condemned pod with the lowest ordinal that is not available.
func (s *state) firstUnavailable() *corev1.Pod {
	for _, pod := range slices.Backward(s.condemned) {
		if !s.available(pod) {
			return pod
		}
	}
	return nil
}

// stuck reports whether replica i, which is not available, is to be replaced although
// OrderedReady waits for it. Upstream waits, so that a set whose revision cannot become
// ready stays broken after its template is fixed (kubernetes/kubernetes#67250). A pod is
// replaced
//   - if its revision has been abandoned before all pods had it;
//   - if the update has come to its ordinal, or if its containers do not run, unless a pod
//     of the new revision is not available either: that one may be broken, too.
//
// A running pod before its turn may recover: the update waits for it, in order.
func (s *state) stuck(i int) bool {
	revision := revisionOf(s.replicas[i])
	switch {
	case s.onDelete() || revision == s.update:
		return false
	case revision != s.current:
		return true
	case i < s.partition():
		return false
	}
	return !s.failing() && (s.inTurn(i) || !running(s.replicas[i]))
}

// inTurn reports whether all pods after replica i that exist are updated and available.
func (s *state) inTurn(i int) bool {
	for _, pod := range s.replicas[i+1:] {
		if pod != nil && (revisionOf(pod) != s.update || !s.available(pod)) {
			return false
		}
	}
	return true
}

// failing reports whether an updated pod is not available.
func (s *state) failing() bool {
	return slices.ContainsFunc(s.replicas, func(pod *corev1.Pod) bool {
		return pod != nil && revisionOf(pod) == s.update && !s.available(pod)
	})
}

// outdated returns the pods that a rolling update deletes next, the highest ordinal first.
// Pods that are not available do not count against maxUnavailable. besides are deleted
// anyway.
func (s *state) outdated(besides []*corev1.Pod) (out []*corev1.Pod) {
	if s.onDelete() {
		return nil
	}
	budget := s.maxUnavailable() - s.unavailable()
	failing := s.failing()
	for i, pod := range slices.Backward(s.replicas) {
		if i < s.partition() {
			break
		}
		if pod == nil || pod.DeletionTimestamp != nil || revisionOf(pod) == s.update || slices.Contains(besides, pod) {
			continue
		}
		switch {
		case s.available(pod) && budget > 0:
			budget--
			out = append(out, pod)
		case !s.available(pod) && !failing:
			out = append(out, pod)
		}
	}
	return out
}

// due returns the revision at which replica i is to be created.
func (s *state) due(i int) string {
	rolling := s.set.Spec.UpdateStrategy.RollingUpdate
	switch {
	case s.onDelete():
		return s.update
	case rolling == nil && i < int(s.set.Status.CurrentReplicas), i < s.partition():
		return s.current
	}
	return s.update
}

func (s *state) onDelete() bool {
	return s.set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType
}

// partition returns the index of the first replica that updates concern.
func (s *state) partition() int {
	if r := s.set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil {
		return int(*r.Partition)
	}
	return 0
}

// maxUnavailable returns how many pods an update may make unavailable, at least 1.
func (s *state) maxUnavailable() int {
	r := s.set.Spec.UpdateStrategy.RollingUpdate
	if r == nil || r.MaxUnavailable == nil {
		return 1
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(r.MaxUnavailable, len(s.replicas), false)
	if err != nil {
		return 1 // the API refuses such values
	}
	return max(n, 1)
}

// unavailable returns how many replicas are missing or not available.
func (s *state) unavailable() (n int) {
	for _, pod := range s.replicas {
		if !s.available(pod) {
			n++
		}
	}
	return n
}

func (s *state) available(pod *corev1.Pod) bool {
	ok, _ := availability(s.set, pod, s.now)
	return ok
}
