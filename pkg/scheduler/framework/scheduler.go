package framework

import (
	"errors"
	"math/rand/v2"

	"podium/pkg/scheduler/snapshot"
)

// Scheduler finds places for pods. It is not safe for concurrent use, and
// works for one snapshot at a time.
type Scheduler struct {
	filters []Filter
	scorers []Weighted
	rand    *rand.Rand

	of    *snapshot.Snapshot
	cache shapes
}

// New makes a scheduler of its plugins, asked in this order. Among nodes that
// suit equally well rnd chooses; nil chooses the first by name.
func New(filters []Filter, scorers []Weighted, rnd *rand.Rand) *Scheduler {
	return &Scheduler{filters: filters, scorers: scorers, rand: rnd}
}

// Placement is where a pod should go.
type Placement struct {
	Node     string
	Score    int64
	Feasible int // how many nodes could run it
	Asked    int // of how many
}

// ErrNoNodes says that there is not one node, in upstream's words.
var ErrNoNodes = errors.New("no nodes available to schedule pods")

// Schedule chooses a node for the pod and changes nothing. When there is none
// the error is ErrNoNodes or a *FitError.
func (s *Scheduler) Schedule(snap *snapshot.Snapshot, pod *snapshot.Pod) (Placement, error) {
	if snap.Nodes() == 0 {
		return Placement{}, ErrNoNodes
	}
	v := s.answers(snap, pod)
	row, score, feasible := v.best(snap, s.rand)
	if feasible == 0 {
		return Placement{}, s.fitError(snap, pod, v)
	}
	return Placement{Node: snap.At(row).Name(), Score: score, Feasible: feasible, Asked: snap.Nodes()}, nil
}

// answers returns what the plugins say about pods of this shape, up to date.
func (s *Scheduler) answers(snap *snapshot.Snapshot, pod *snapshot.Pod) *answers {
	if s.of != snap {
		s.of, s.cache = snap, shapes{}
	}
	v := s.cache.get(pod.Shape)
	if v == nil {
		v = s.ask(pod)
		s.cache.put(pod.Shape, v)
	}
	v.update(snap)
	return v
}

// ask prepares the questions about a pod.
func (s *Scheduler) ask(pod *snapshot.Pod) *answers {
	v := &answers{position: -1}
	for i, f := range s.filters {
		if q := f.Filter(pod); q != nil {
			v.filters = append(v.filters, filterQuestion{int8(i), q})
		}
	}
	for _, sc := range s.scorers {
		q := sc.Score(pod)
		if q == nil {
			continue
		}
		if sc.Normalize() == AsIs {
			v.plain = append(v.plain, scoreQuestion{q, sc.Weight})
		} else {
			v.relative = append(v.relative, relativeQuestion{scoreQuestion{q, sc.Weight}, sc.Normalize(), nil})
		}
	}
	return v
}

// fitError gathers why no node will do. The reasons are asked for again: they
// are not kept, only who said no.
func (s *Scheduler) fitError(snap *snapshot.Snapshot, pod *snapshot.Pod, v *answers) *FitError {
	e := &FitError{Pod: pod.Namespace + "/" + pod.Name, Wakes: NodeAdded}
	for row := range snap.Rows() {
		n := snap.At(row)
		if !n.Exists() {
			continue
		}
		q := v.filters[v.refused[row]]
		plugin := s.filters[q.plugin]
		e.Nodes = append(e.Nodes, NodeReasons{n.Name(), plugin.Name(), q.ask(n)})
		e.Wakes |= plugin.Wakes()
	}
	e.sort()
	return e
}
