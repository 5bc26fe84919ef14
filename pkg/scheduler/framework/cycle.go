package framework

import "podium/pkg/scheduler/snapshot"

// Cycle is the attempt to place a pod that fits on no node, as PostFilter plugins see it.
type Cycle struct {
	Snapshot *snapshot.Snapshot
	Pod      *snapshot.Pod
	Error    *FitError

	shape   string
	answers *answers
}

// PostFilter calls the PostFilter plugins until one nominates a node for a pod that fits on no
// node. It changes nothing but fit.After.
func (s *Scheduler) PostFilter(snap *snapshot.Snapshot, pod *snapshot.Pod, fit *FitError) (out Nomination) {
	began, result := s.now(), ResultSuccess
	defer func() { s.took(PostFilter, result, began) }()
	c := s.cycleOf(snap, pod, fit)
	for _, p := range only[PostFilterPlugin](s.plugins) {
		if n := p.PostFilter(c); out.add(n) {
			return n
		}
	}
	fit.After, result = out.Message, ResultUnschedulable
	return out
}

func (s *Scheduler) cycleOf(snap *snapshot.Snapshot, pod *snapshot.Pod, fit *FitError) *Cycle {
	return &Cycle{Snapshot: snap, Pod: pod, Error: fit, answers: s.answersFor(snap, pod), shape: string(s.shape)}
}

// add adds what a plugin says that nominates no node. It reports whether the plugin does
// nominate one.
func (n *Nomination) add(other Nomination) (nominates bool) {
	if other.Message != "" {
		n.Message = other.Message
	}
	n.Void = n.Void || other.Void
	if other.Release != nil {
		n.Release = other.Release
	}
	return other.Node != ""
}

// Shape is equal for pods for which all plugins read the same.
func (c *Cycle) Shape() string { return c.shape }

// Local reports whether the filters' answer for each node depends on that node only.
func (c *Cycle) Local() bool { return len(c.answers.clusterFilters) == 0 }

// Resolvable reports whether the removal of pods may let the pod fit on a node that rejects it,
// as far as the answer depends on that node only.
func (c *Cycle) Resolvable(row int) bool {
	switch c.answers.refused[row] {
	case absent:
		return false
	case fits:
		_, status := c.answers.clusterRefusal(c.Snapshot.At(row))
		return status == nil || status.Code == Unschedulable
	}
	return c.answers.statuses[row].Code == Unschedulable
}

// Try starts a hypothetical change of a node's pods.
func (c *Cycle) Try(n snapshot.Node) *Trial {
	return &Trial{Trial: n.Try(), node: n, pod: c.Pod, answers: c.answers}
}

// Trial is a hypothetical change of a node's pods.
type Trial struct {
	*snapshot.Trial
	node    snapshot.Node
	pod     *snapshot.Pod
	answers *answers
}

// Fits reports whether the pod would fit on the node, also beside the pods of the same or a
// higher priority that the node is nominated for.
func (t *Trial) Fits() bool {
	t.answers.updateFilters(t.node)
	if _, status := t.answers.firstRefusal(t.node); status != nil {
		return false
	}
	_, status := t.answers.beside(t.node, t.pod)
	return status == nil
}

// End undoes the change.
func (t *Trial) End() {
	t.Trial.End()
	t.answers.updateFilters(t.node)
}

// why returns the first plugin that rejects a node, and its status. Filters must be up to date.
func (v *answers) why(snap *snapshot.Snapshot, pod *snapshot.Pod, row int) (Plugin, *Status) {
	if i := v.refused[row]; i >= 0 {
		return v.filters[i].plugin, v.statuses[row]
	}
	return v.beside(snap.At(row), pod)
}

// beside returns the first plugin that rejects a node which no NodeFilter rejects: by itself, or
// together with the pods of the same or a higher priority that the node is nominated for.
func (v *answers) beside(n snapshot.Node, pod *snapshot.Pod) (Plugin, *Status) {
	if plugin, status := v.clusterRefusal(n); status != nil {
		return plugin, status
	}
	var trial *snapshot.Trial
	for _, p := range n.Nominees() {
		if p.UID == pod.UID || p.Priority() < pod.Priority() {
			continue
		}
		if trial == nil {
			trial = n.Try()
		}
		trial.Add(p)
	}
	if trial == nil {
		return nil, nil
	}
	defer func() {
		trial.End()
		v.updateFilters(n)
	}()
	v.updateFilters(n)
	if i, status := v.firstRefusal(n); status != nil {
		return v.filters[i].plugin, status
	}
	return v.clusterRefusal(n)
}
