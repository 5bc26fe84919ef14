package daemonset

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
)

// roll returns the next actions of a rolling update.
func (s *state) roll() plan {
	desired := s.desired()
	surge, unavailable := share(s.rolling().MaxSurge, desired), share(s.rolling().MaxUnavailable, desired)
	if surge > 0 {
		return s.surge(surge, desired)
	}
	return s.replace(max(unavailable, 1))
}

// replace deletes old pods so that at most limit pods are unavailable. Old pods that are not
// available anyway go first, all of them.
func (s *state) replace(limit int) plan {
	var p plan
	var candidates []*corev1.Pod
	unavailable := 0
	for _, node := range s.nodesWithPods() {
		updated, old, ok := s.versions(node)
		switch {
		case !ok || (updated == nil) == (old == nil):
			unavailable++ // a later reconcile handles the node
		case updated != nil:
			if !s.available(updated) {
				unavailable++
			}
		case !s.available(old):
			p.Delete = append(p.Delete, old)
			unavailable++
		default:
			candidates = append(candidates, old)
		}
	}
	p.Delete = append(p.Delete, firstOf(candidates, limit-unavailable)...)
	return p
}

// surge creates new pods beside old ones, at most limit of them beside available pods, and
// deletes each old pod when the new one is available. Old pods on nodes that should run none
// go only as long as desired pods remain available.
func (s *state) surge(limit, desired int) plan {
	var p plan
	var misplaced []*corev1.Pod
	var candidates []string
	surging, available := 0, 0
	for _, node := range s.nodesWithPods() {
		updated, old, ok := s.versions(node)
		if !ok {
			surging++
			continue
		}
		first := cmp.Or(old, updated)
		up := first != nil && s.available(first)
		if up {
			available++
		}
		switch {
		case old == nil:
		case updated != nil && s.available(updated):
			p.Delete = append(p.Delete, old)
		case updated != nil:
			surging++
		case !s.runs[node] && up:
			misplaced = append(misplaced, old)
		case !s.runs[node]:
			p.Delete = append(p.Delete, old)
		case !up:
			p.Create = append(p.Create, node)
		default:
			candidates = append(candidates, node)
		}
	}
	p.Delete = append(p.Delete, firstOf(misplaced, available-desired)...)
	p.Create = append(p.Create, firstOf(candidates, limit-surging)...)
	return p
}

// versions returns the pod of the current template and the one of an old template on a node,
// without those that are being deleted. ok is false if there are more than one of either.
func (s *state) versions(node string) (updated, old *corev1.Pod, ok bool) {
	for _, pod := range s.pods[node] {
		if pod.DeletionTimestamp != nil {
			continue
		}
		slot := &old
		if s.updated(pod) {
			slot = &updated
		}
		if *slot != nil {
			return nil, nil, false
		}
		*slot = pod
	}
	return updated, old, true
}

// firstOf returns the first n elements at most.
func firstOf[T any](list []T, n int) []T { return list[:max(0, min(n, len(list)))] }
