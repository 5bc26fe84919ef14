package framework

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler/snapshot"
)

// Candidate is a node that no plugin rejects for a pod. It stays valid when the snapshot
// changes, so that extenders can judge it without the scheduler's lock.
type Candidate struct {
	Node  *corev1.Node
	Score int64 // the total of the plugins, to which extenders add theirs
}

// Rejections say why extenders reject nodes, by name.
type Rejections map[string]*Status

// ErrChanged means that the cluster has changed so much while extenders were asked that none
// of the nodes that they accept fits any more, although others may.
var ErrChanged = errors.New("the nodes changed while extenders were asked")

// byExtender is the plugin of the nodes in a FitError that extenders reject.
type byExtender struct{}

func (byExtender) Name() string            { return "Extender" }
func (byExtender) EventsToRegister() Event { return AnyEvent }

// Candidates returns the nodes that no plugin rejects. Its errors are those of Schedule.
func (s *Scheduler) Candidates(snap *snapshot.Snapshot, pod *snapshot.Pod) ([]Candidate, error) {
	if snap.Nodes() == 0 {
		return nil, ErrNoNodes
	}
	began := s.now()
	v := s.answersFor(snap, pod)
	v.findFeasible(snap, pod)
	s.took(Filter, ResultSuccess, began)
	if len(v.feasible) == 0 {
		return nil, v.fitError(snap, pod, nil)
	}
	began = s.now()
	v.sumScores()
	s.took(Score, ResultSuccess, began)
	out := make([]Candidate, len(v.feasible))
	for i, row := range v.feasible {
		out[i] = Candidate{snap.At(int(row)).Object(), v.totals[i]}
	}
	return out, nil
}

// Choose is Schedule among the candidates that extenders have left, as far as they still fit.
// If none does, the error is a *FitError, which contains rejected, or ErrChanged.
func (s *Scheduler) Choose(snap *snapshot.Snapshot, pod *snapshot.Pod, left []Candidate, rejected Rejections) (Placement, error) {
	if snap.Nodes() == 0 {
		return Placement{}, ErrNoNodes
	}
	v := s.answersFor(snap, pod)
	v.findFeasible(snap, pod)
	scores := make(map[string]int64, len(left))
	for _, c := range left {
		scores[c.Node.Name] = c.Score
	}
	nominated, hasNominated := snap.Nominated(pod.UID)
	out, row, ties := Placement{Feasible: len(left), Asked: snap.Nodes()}, -1, 0
	for _, r := range v.feasible {
		n := snap.At(int(r))
		score, accepted := scores[n.Name()]
		switch {
		case !accepted:
			continue
		case hasNominated && n.Row() == nominated.Row():
			return Placement{Node: n.Name(), Feasible: 1, Asked: 1}, nil
		case row < 0 || score > out.Score:
			row, out.Score, ties = n.Row(), score, 1
		case score == out.Score:
			if ties++; prefer(snap, s.rand, n.Row(), row, ties) {
				row = n.Row()
			}
		}
	}
	if row < 0 {
		return Placement{}, v.fitError(snap, pod, rejected)
	}
	out.Node = snap.At(row).Name()
	return out, nil
}

// Rejected returns the status with which an extender rejects a row that no plugin rejects, nil
// if none does.
func (c *Cycle) Rejected(row int) *Status { return c.Error.outside[row] }

// OptionsPlugin is a PostFilterPlugin whose choice extenders may restrict.
type OptionsPlugin interface {
	PostFilterPlugin
	// Options returns all nodes that PostFilter may nominate. If there is none, it returns
	// what PostFilter would.
	Options(*Cycle) ([]Nomination, Nomination)
	// Best returns the best of some nominations, whose victims may differ from those that
	// Options returned.
	Best([]Nomination) Nomination
}

// Options calls the PostFilter plugins as PostFilter does. If the first one that nominates a
// node is an OptionsPlugin, it returns it with all of its choices.
func (s *Scheduler) Options(snap *snapshot.Snapshot, pod *snapshot.Pod, fit *FitError) (OptionsPlugin, []Nomination, Nomination) {
	began, result := s.now(), ResultSuccess
	defer func() { s.took(PostFilter, result, began) }()
	c := s.cycleOf(snap, pod, fit)
	var out Nomination
	for _, p := range only[PostFilterPlugin](s.plugins) {
		var n Nomination
		if o, ok := p.(OptionsPlugin); ok {
			var options []Nomination
			if options, n = o.Options(c); len(options) > 0 {
				return o, options, Nomination{}
			}
		} else {
			n = p.PostFilter(c)
		}
		if out.add(n) {
			return nil, nil, n
		}
	}
	fit.After, result = out.Message, ResultUnschedulable
	return nil, nil, out
}
