package scheduler

import (
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/plugins"
	"podium/pkg/scheduler/snapshot"
)

// Schedule chooses a node for the pod in the cluster state snap. It changes nothing: call
// snap.Assume for a placed pod before scheduling the next one. If no node fits, the error is
// framework.ErrNoNodes, or a *framework.FitError with the reasons of each node.
func Schedule(snap *snapshot.Snapshot, pod *corev1.Pod) (framework.Placement, error) {
	return NewAlgorithm(nil).Schedule(snap, snapshot.NewPod(pod))
}

// NewAlgorithm returns a scheduler with the default profile, which caches answers for pods of
// one shape. rnd chooses among nodes of equal score; with a nil rnd the first by name is
// chosen.
func NewAlgorithm(rnd *rand.Rand) *framework.Scheduler {
	return framework.New(plugins.Default(nil), rnd)
}
