package extender

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

// Preempts reports whether one of the extenders restricts preemption.
func (l List) Preempts() bool {
	return slices.ContainsFunc(l, func(e *extender) bool { return e.PreemptVerb != "" })
}

// PodOn returns the pod with a UID on a node, nil if there is none.
type PodOn func(node string, uid types.UID) *snapshot.Pod

// Preempt asks one extender after the other which of the options, which have victims, to keep,
// and with which victims. The first error of an extender that is not ignorable ends it.
func (l List) Preempt(ctx context.Context, pod *snapshot.Pod, options []framework.Nomination, on PodOn) ([]framework.Nomination, error) {
	for _, e := range l {
		if e.PreemptVerb == "" || len(options) == 0 {
			continue
		}
		left, err := e.preempt(ctx, pod, options, on)
		switch {
		case err == nil:
			options = left
		case !e.Ignorable:
			return nil, fmt.Errorf("extender %s: preempt: %w", e.URLPrefix, err)
		default:
			e.log.Warn("ignorable extender failed", "verb", e.PreemptVerb, "error", err)
		}
	}
	return options, nil
}

func (e *extender) preempt(ctx context.Context, pod *snapshot.Pod, options []framework.Nomination, on PodOn) ([]framework.Nomination, error) {
	data, err := e.post(ctx, e.PreemptVerb, e.preemptionOf(pod, options))
	if err != nil {
		return nil, err
	}
	chosen, err := decodePreemption(data)
	if err != nil {
		return nil, err
	}
	var left []framework.Nomination
	for _, o := range options {
		v := chosen[o.Node]
		if v == nil {
			continue
		}
		delete(chosen, o.Node)
		n := framework.Nomination{Node: o.Node, Violations: int(v.NumPDBViolations)}
		if n.Victims, err = victimsOf(pod, o.Node, v, on); err != nil {
			return nil, err
		}
		left = append(left, n)
	}
	for node := range chosen {
		return nil, fmt.Errorf("the response names a node %q that is not in the request", shorten(node))
	}
	return left, nil
}

// victimsOf returns the pods that an extender names. It may not name pods that the pod may not
// preempt.
func victimsOf(pod *snapshot.Pod, node string, v *metaVictims, on PodOn) (out []*snapshot.Pod, err error) {
	for _, named := range v.Pods {
		victim := on(node, types.UID(named.UID))
		if victim == nil || victim.Priority() >= pod.Priority() {
			return nil, fmt.Errorf("the victim %q is not a pod of lower priority on node %s", shorten(named.UID), node)
		}
		if !slices.Contains(out, victim) {
			out = append(out, victim)
		}
	}
	return out, nil
}

func (e *extender) preemptionOf(pod *snapshot.Pod, options []framework.Nomination) preemptionArgs {
	a := preemptionArgs{Pod: pod.Pod}
	if e.NodeCacheCapable {
		a.NodeNameToMetaVictims = map[string]*metaVictims{}
		for _, o := range options {
			v := &metaVictims{NumPDBViolations: int64(o.Violations)}
			for _, p := range o.Victims {
				v.Pods = append(v.Pods, &metaPod{string(p.UID)})
			}
			a.NodeNameToMetaVictims[o.Node] = v
		}
		return a
	}
	a.NodeNameToVictims = map[string]*victims{}
	for _, o := range options {
		v := &victims{NumPDBViolations: int64(o.Violations)}
		v.Pods = append(v.Pods, podsOf(o.Victims)...)
		a.NodeNameToVictims[o.Node] = v
	}
	return a
}

func podsOf(list []*snapshot.Pod) (out []*corev1.Pod) {
	for _, p := range list {
		out = append(out, p.Pod)
	}
	return out
}
