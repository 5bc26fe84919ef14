package scheduler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

// nominated follows status.nominatedNodeName of a pending pod. A version of the pod without it
// may be older than a nomination that is not in the API yet. A pod that is being bound counts on its
// node already.
func (s *scheduler) nominated(old, new *corev1.Pod) {
	name := new.Status.NominatedNodeName
	switch {
	case s.snap.Assumed(new.UID), old != nil && old.Status.NominatedNodeName == name && !needsChanged(old, new):
	case name != "":
		s.snap.Nominate(snapshot.NewPod(new), name)
	case old != nil && old.Status.NominatedNodeName != "":
		s.dropNomination(new.UID)
	}
}

// dropNomination ends a nomination, if there is one. Other pods may then get the room.
func (s *scheduler) dropNomination(uid types.UID) {
	if s.snap.Unnominate(uid) {
		s.queue.Wake(framework.PodGone)
	}
}

// unnominate ends the nomination of a pod that is about to be bound. If the binding fails and the
// pod still waits for a node, the nomination holds again.
func (s *scheduler) unnominate(b *binding) {
	n, ok := s.snap.Nominated(b.pod.UID)
	if !ok {
		return
	}
	node := n.Name()
	s.dropNomination(b.pod.UID)
	b.undo.Push(func() {
		if s.pending(b.pod.Pod) {
			s.snap.Nominate(b.pod, node)
		}
	})
}

// expect writes to the status of a pod that waits before it is bound to which node that will be, for
// autoscalers and for a scheduler that is started meanwhile (KEP-5278). The binding goes on if that
// fails.
func (s *scheduler) expect(ctx context.Context, b *binding) {
	b.expected = true
	now, err := s.patchNomination(ctx, b.attempt.Pod, b.node, func(node string) bool { return node != b.node })
	if err == nil {
		b.attempt.Pod = now
	} else if ctx.Err() == nil {
		s.cfg.Log.Warn("patch pod status failed", "pod", b.pod.Namespace+"/"+b.pod.Name, "error", err)
	}
}

// nominationAfter returns what status.nominatedNodeName is to say after a binding that failed. Callers
// hold the lock.
func (s *scheduler) nominationAfter(b *binding) (n framework.Nomination) {
	if !b.expected {
		return n
	}
	if node, ok := s.snap.Nominated(b.pod.UID); ok {
		n.Node = node.Name()
	}
	n.Void = n.Node == ""
	return n
}

// clearNomination removes a nomination from a pod's status.
func (s *scheduler) clearNomination(ctx context.Context, pod *corev1.Pod, node string) {
	_, _ = s.patchNomination(ctx, pod, "", func(now string) bool { return now == node })
}

// patchNomination sets status.nominatedNodeName of a pending pod, or removes it if node is "", if due
// returns true for what it says. It returns the latest version of the pod.
func (s *scheduler) patchNomination(ctx context.Context, pod *corev1.Pod, node string, due func(now string) bool) (*corev1.Pod, error) {
	var err error
	for range statusTries {
		pod = s.latest(pod)
		if pod.Spec.NodeName != "" || !due(pod.Status.NominatedNodeName) {
			return pod, nil
		}
		var patch []byte
		if patch, err = patchOf(pod, map[string]any{"nominatedNodeName": orNull(node)}); err != nil {
			return pod, err
		}
		var now *corev1.Pod
		now, err = s.api.In(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, "status")
		if err == nil {
			s.strip(now)
			return now, nil
		}
		if !apierrors.IsConflict(err) {
			break
		}
	}
	return pod, err
}

// latest returns the cached version of a pod, unless it is older than this one.
func (s *scheduler) latest(pod *corev1.Pod) *corev1.Pod {
	now, ok := s.pods.Get(pod.Namespace, pod.Name)
	if !ok || now.UID != pod.UID {
		return pod
	}
	if order, err := resourceversion.CompareResourceVersion(now.ResourceVersion, pod.ResourceVersion); err == nil && order < 0 {
		return pod
	}
	return now
}
