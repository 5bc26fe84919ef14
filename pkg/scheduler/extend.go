package scheduler

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheduler/extender"
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

// extended is the scheduling cycle of a pod in which extenders are interested. It asks them
// without the lock, so that the informers are not delayed, and then chooses among the nodes
// that still fit.
func (s *scheduler) extended(ctx context.Context, b *binding, asked extender.List) (nomination framework.Nomination, err error) {
	algorithm := s.of(b.pod.Pod).algorithm
	var p preemption
	s.mu.Lock()
	candidates, err := algorithm.Candidates(s.snap, b.pod)
	if err != nil {
		p = s.consider(ctx, b, asked, err)
	}
	s.mu.Unlock()
	if err == nil {
		left, rejected, failed := asked.Filter(ctx, b.pod.Pod, candidates)
		if failed != nil {
			return nomination, failed
		}
		asked.Prioritize(ctx, b.pod.Pod, left)
		p, err = s.choose(ctx, b, asked, left, rejected)
	}
	if p.plugin == nil {
		return p.nomination, err
	}
	return s.preemptAsked(ctx, b, asked, p), err
}

// errNotPending means that the pod was deleted or bound while extenders were asked.
var errNotPending = errors.New("the pod is no longer pending")

// pending reports whether the pod still waits for a node.
func (s *scheduler) pending(pod *corev1.Pod) bool {
	now, ok := s.pods.Get(pod.Namespace, pod.Name)
	return ok && now.UID == pod.UID && s.ours(now) && now.Spec.NodeName == ""
}

// choose reserves the best of the nodes that the extenders have left.
func (s *scheduler) choose(ctx context.Context, b *binding, asked extender.List, left []framework.Candidate, rejected framework.Rejections) (p preemption, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.pending(b.pod.Pod) {
		return p, errNotPending
	}
	place, err := s.of(b.pod.Pod).algorithm.Choose(s.snap, b.pod, left, rejected)
	if err != nil {
		return s.consider(ctx, b, asked, err), err
	}
	return p, s.place(b, place)
}

// preemption is what the PostFilter plugins decide: a nomination, or options for extenders.
type preemption struct {
	fit        *framework.FitError
	nomination framework.Nomination // carried out already
	plugin     framework.OptionsPlugin
	options    []framework.Nomination
}

// consider calls the PostFilter plugins for a pod that fits on no node. Callers hold the lock.
func (s *scheduler) consider(ctx context.Context, b *binding, asked extender.List, err error) (p preemption) {
	if !errors.As(err, &p.fit) {
		return p
	}
	algorithm := s.of(b.pod.Pod).algorithm
	if !asked.Preempts() {
		p.nomination = algorithm.PostFilter(s.snap, b.pod, p.fit)
	} else if p.plugin, p.options, p.nomination = algorithm.Options(s.snap, b.pod, p.fit); p.plugin != nil {
		return p
	}
	s.preempt(ctx, b.pod, p.nomination)
	return p
}

// preemptAsked asks the extenders which of the options to keep, and carries out the best one.
// An option without victims evicts nothing: there is nothing to ask.
func (s *scheduler) preemptAsked(ctx context.Context, b *binding, asked extender.List, p preemption) framework.Nomination {
	best := p.plugin.Best(p.options)
	if len(best.Victims) > 0 {
		left, err := asked.Preempt(ctx, b.pod, p.options, s.podOn)
		best = p.plugin.Best(left)
		switch {
		case err != nil:
			s.cfg.Log.Warn("ask extenders about preemption failed", "pod", b.pod.Namespace+"/"+b.pod.Name, "error", err)
			p.fit.After = "preemption: " + err.Error()
		case best.Node == "":
			best.Void = true
			p.fit.After = "preemption: the extenders allow no node."
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.pending(b.pod.Pod) {
		return framework.Nomination{}
	}
	s.preempt(ctx, b.pod, best)
	return best
}

// podOn returns a pod on a node, nil if it is not there.
func (s *scheduler) podOn(node string, uid types.UID) *snapshot.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snap.PodOn(node, uid)
}

// write binds the pod, or lets an extender do it.
func (s *scheduler) write(ctx context.Context, b *binding) error {
	bind, ignorable := s.extenders.For(b.attempt.Pod).Binder()
	if bind == nil {
		return s.post(ctx, b)
	}
	err := bind(ctx, b.attempt.Pod, b.node)
	if err == nil || !ignorable {
		return err
	}
	s.cfg.Log.Warn("ignorable extender failed to bind", "pod", b.pod.Namespace+"/"+b.pod.Name, "error", err)
	return s.post(ctx, b)
}
