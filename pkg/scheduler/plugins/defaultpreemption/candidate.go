package defaultpreemption

import (
	"cmp"
	"math"
	"slices"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

// candidate is what preemption would do on a node, and what it would cost.
type candidate struct {
	found   bool // the pod fits once the victims are gone
	victims []*snapshot.Pod

	violations int   // of PodDisruptionBudgets
	highest    int32 // priority of a victim
	sum        int64 // of the victims' priorities, each made positive
	started    int64 // when the first of the victims of that priority started
}

// better reports whether b costs more: by violated budgets, the highest priority of a victim,
// the sum of priorities, the number of victims, and the age of the most important ones.
func (a *candidate) better(b *candidate) bool {
	return cmp.Or(
		cmp.Compare(a.violations, b.violations),
		cmp.Compare(a.highest, b.highest),
		cmp.Compare(a.sum, b.sum),
		cmp.Compare(len(a.victims), len(b.victims)),
		-cmp.Compare(a.started, b.started),
	) < 0
}

// newCandidate removes all pods of lower priority from a node, hypothetically, and then puts
// back as many as possible: first those whose eviction would violate a PodDisruptionBudget, and
// the more important ones before others. Pods that were preempted already are not put back, and
// cost nothing. Others that terminate cost as much as their eviction: they may take long.
func newCandidate(c *framework.Cycle, row int) candidate {
	n := c.Snapshot.At(row)
	if !c.Resolvable(row) {
		return candidate{}
	}
	var lower []*snapshot.Pod
	for p := range n.Pods() {
		if p.Priority() < c.Pod.Priority() {
			lower = append(lower, p)
		}
	}
	if len(lower) == 0 {
		return candidate{}
	}
	trial := c.Try(n)
	defer trial.End()
	for _, p := range lower {
		trial.Remove(p)
	}
	if !trial.Fits() {
		return candidate{}
	}
	lower = slices.DeleteFunc(lower, c.Snapshot.Preempted)
	slices.SortFunc(lower, byImportance)
	protected, others := split(c.Snapshot, lower)
	out := candidate{found: true, highest: math.MinInt32}
	out.violations = out.reprieve(trial, protected)
	out.reprieve(trial, others)
	out.rank()
	return out
}

// reprieve puts back the pods beside which the pod still fits. It returns how many of the others
// there are, and adds them to the victims.
func (a *candidate) reprieve(trial *framework.Trial, pods []*snapshot.Pod) (evicted int) {
	for _, p := range pods {
		trial.Add(p)
		if trial.Fits() {
			continue
		}
		trial.Remove(p)
		a.victims = append(a.victims, p)
		evicted++
	}
	return evicted
}

func (a *candidate) rank() {
	slices.SortFunc(a.victims, byImportance)
	a.started = math.MaxInt64
	for i, p := range a.victims {
		if i == 0 {
			a.highest, a.started = p.Priority(), started(p)
		}
		a.sum += int64(p.Priority()) + math.MaxInt32 + 1
	}
}

// byImportance sorts pods of higher priority first, and of these the older ones.
func byImportance(a, b *snapshot.Pod) int {
	return cmp.Or(-cmp.Compare(a.Priority(), b.Priority()), cmp.Compare(started(a), started(b)), cmp.Compare(a.UID, b.UID))
}

// started returns when the kubelet has seen the pod; a pod that it has not is the youngest.
func started(p *snapshot.Pod) int64 {
	if p.Status.StartTime == nil {
		return math.MaxInt64
	}
	return p.Status.StartTime.UnixNano()
}

// split returns the pods whose eviction, after that of the pods before them, would violate a
// PodDisruptionBudget, and the others.
func split(s *snapshot.Snapshot, pods []*snapshot.Pod) (protected, others []*snapshot.Pod) {
	left := map[*snapshot.Budget]int32{}
	for _, p := range pods {
		violates := false
		for _, b := range s.Budgets(p.Namespace) {
			if !b.Covers(p) {
				continue
			}
			if _, ok := left[b]; !ok {
				left[b] = b.Allowed
			}
			if left[b]--; left[b] < 0 {
				violates = true
			}
		}
		if violates {
			protected = append(protected, p)
		} else {
			others = append(others, p)
		}
	}
	return protected, others
}
