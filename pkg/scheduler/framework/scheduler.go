package framework

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"podium/pkg/scheduler/snapshot"
)

// Scheduler chooses nodes for pods with the plugins of a profile. Its cache belongs to the
// snapshot of the last call. Only Permit, PreBind and PostBind are safe for concurrent use.
type Scheduler struct {
	Observe Observer // nil: nothing is measured

	plugins []Weighted
	rand    *rand.Rand

	of    *snapshot.Snapshot
	cache shapes
	shape []byte // buffer
	ends  []int  // of the plugins' parts in shape
}

// New returns a scheduler with these plugins, which are called in this order. rnd chooses
// among nodes of equal score; with a nil rnd the first by name is chosen.
func New(plugins []Weighted, rnd *rand.Rand) *Scheduler {
	return &Scheduler{plugins: plugins, rand: rnd}
}

// Placement is the result of Schedule.
type Placement struct {
	Node     string
	Score    int64
	Feasible int // number of those that no filter rejects
	Asked    int // number of nodes that were looked at
}

// ErrNoNodes means that the cluster has no node. The text is upstream's.
var ErrNoNodes = errors.New("no nodes available to schedule pods")

// Schedule chooses a node for the pod and changes nothing but what Derive sets in the pod. A
// node that is nominated for the pod is chosen if it fits. If no node fits, the error is
// ErrNoNodes or a *FitError.
func (s *Scheduler) Schedule(snap *snapshot.Snapshot, pod *snapshot.Pod) (Placement, error) {
	if snap.Nodes() == 0 {
		return Placement{}, ErrNoNodes
	}
	began := s.now()
	v := s.answersFor(snap, pod)
	if n, ok := snap.Nominated(pod.UID); ok && v.refused[n.Row()] == fits {
		if _, status := v.why(snap, pod, n.Row()); status == nil {
			s.took(Filter, ResultSuccess, began)
			return Placement{Node: n.Name(), Feasible: 1, Asked: 1}, nil
		}
	}
	v.findFeasible(snap, pod)
	s.took(Filter, ResultSuccess, began)
	if len(v.feasible) == 0 {
		return Placement{}, v.fitError(snap, pod, nil)
	}
	began = s.now()
	row, score := v.best(snap, s.rand)
	s.took(Score, ResultSuccess, began)
	return Placement{Node: snap.At(row).Name(), Score: score, Feasible: len(v.feasible), Asked: snap.Nodes()}, nil
}

// answersFor returns the current answers for pods of the shape of this one.
func (s *Scheduler) answersFor(snap *snapshot.Snapshot, pod *snapshot.Pod) *answers {
	if s.of != snap {
		s.of, s.cache = snap, newShapes()
	}
	snap.Derive(pod)
	v := s.cache.get(s.shapeOf(pod), func() *answers { return s.prepare(pod) })
	v.update(snap)
	return v
}

// shapeOf returns the shape of a pod as a cache key. It is valid until the next call.
func (s *Scheduler) shapeOf(pod *snapshot.Pod) []byte {
	b, ends := s.shape[:0], s.ends[:0]
	for _, p := range s.plugins {
		if r, ok := p.Plugin.(Reader); ok {
			b = AppendShape(b, r, pod)
		}
		ends = append(ends, len(b))
	}
	s.shape, s.ends = b, ends
	return b
}

// prepare returns answers for a pod's shape, the last that shapeOf returned.
func (s *Scheduler) prepare(pod *snapshot.Pod) *answers {
	v, begin := &answers{position: -1}, 0
	for i, p := range s.plugins {
		if _, ok := p.Plugin.(Reader); ok {
			key := partKey{i, string(s.shape[begin:s.ends[i]])}
			v.parts = append(v.parts, key)
			v.add(p, s.cache.part(key, p, pod))
		}
		begin = s.ends[i]
	}
	return v
}

// add adds what a plugin answers.
func (v *answers) add(w Weighted, p *part) {
	if p.filter != nil {
		v.filters = append(v.filters, knownFilter{asked[*column[*Status]]{w.Plugin, p.filter, 0}, p.rangeFilter})
	}
	if p.clusterFilter != nil {
		v.clusterFilters = append(v.clusterFilters, asked[*follower[ClusterFilter]]{w.Plugin, p.clusterFilter, 0})
	}
	if p.clusterScore != nil {
		v.clusterScores = append(v.clusterScores, asked[*follower[ClusterScore]]{w.Plugin, p.clusterScore, w.Weight})
	}
	if p.score == nil {
		return
	}
	q := asked[*column[int64]]{w.Plugin, p.score, w.Weight}
	if how := w.Plugin.(ScorePlugin).Normalize(); how == AsIs {
		v.plain = append(v.plain, plainScore{q, p.rangeScore})
	} else {
		v.relative = append(v.relative, relativeScore{q, how})
	}
}

// Reserve calls the Reserve plugins until one fails. It pushes their Unreserve onto undo, also
// for the one that failed.
func (s *Scheduler) Reserve(pod *snapshot.Pod, node string, undo *Undo) error {
	return each(s, Reserve, func(p ReservePlugin) error {
		undo.Push(func() { p.Unreserve(pod, node) })
		return p.Reserve(pod, node)
	})
}

// Waits reports whether Permit may block for the pod.
func (s *Scheduler) Waits(pod *snapshot.Pod) bool {
	return slices.ContainsFunc(only[PermitPlugin](s.plugins), func(p PermitPlugin) bool { return p.Waits(pod) })
}

// Permit calls the Permit plugins until one rejects the binding. It blocks as long as they do.
func (s *Scheduler) Permit(ctx context.Context, pod *snapshot.Pod, node string) error {
	return each(s, Permit, func(p PermitPlugin) error { return p.Permit(ctx, pod, node) })
}

// PreBind calls the PreBind plugins until one fails.
func (s *Scheduler) PreBind(ctx context.Context, pod *snapshot.Pod, node string) error {
	return each(s, PreBind, func(p PreBindPlugin) error { return p.PreBind(ctx, pod, node) })
}

// PostBind calls the PostBind plugins for a bound pod.
func (s *Scheduler) PostBind(ctx context.Context, pod *snapshot.Pod, node string) {
	began := s.now()
	for _, p := range only[PostBindPlugin](s.plugins) {
		p.PostBind(ctx, pod, node)
	}
	s.took(PostBind, ResultSuccess, began)
}

// only returns the plugins that implement an extension point.
func only[P Plugin](plugins []Weighted) []P {
	var out []P
	for _, w := range plugins {
		if p, ok := w.Plugin.(P); ok {
			out = append(out, p)
		}
	}
	return out
}

func each[P Plugin](s *Scheduler, point string, call func(P) error) error {
	return s.Measure(point, func() error {
		for _, p := range only[P](s.plugins) {
			if err := call(p); err != nil {
				return fmt.Errorf("running %s plugin %q: %w", point, p.Name(), err)
			}
		}
		return nil
	})
}

// Undo is a stack of functions that roll back an attempt. The zero value is
// empty. It is not safe for concurrent use.
type Undo struct{ steps []func() }

// Push adds a step.
func (u *Undo) Push(f func()) { u.steps = append(u.steps, f) }

// Run calls the steps in reverse order and empties the stack: a second call does nothing.
func (u *Undo) Run() {
	for i := len(u.steps) - 1; i >= 0; i-- {
		u.steps[i]()
	}
	u.steps = nil
}
