package scheduler

import (
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/plugins"
	"podium/pkg/scheduler/snapshot"
)

// Schedule says where the pod should go in the cluster that snap shows. It
// changes nothing: count a placed pod with snap.Assume before asking about the
// next one. Without a place the error is framework.ErrNoNodes, or a
// *framework.FitError with the reasons of every node.
func Schedule(snap *snapshot.Snapshot, pod *corev1.Pod) (framework.Placement, error) {
	return NewAlgorithm(nil).Schedule(snap, snapshot.NewPod(pod))
}

// NewAlgorithm is Schedule for many pods: what one pod's shape taught it serves
// the next. Among nodes that suit equally well rnd chooses, or with nil the
// first by name.
func NewAlgorithm(rnd *rand.Rand) *framework.Scheduler {
	return framework.New(plugins.Filters(), plugins.Scorers(), rnd)
}
