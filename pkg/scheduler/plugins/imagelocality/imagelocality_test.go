package imagelocality_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/framework/frameworktest"
	"podium/pkg/scheduler/plugins/imagelocality"
	"podium/pkg/scheduler/snapshot"
)

// reference computes upstream's formula on a list of nodes.
func reference(pod *corev1.Pod, nodes []*corev1.Node, node *corev1.Node) int64 {
	size := func(n *corev1.Node, image string) int64 {
		var out int64
		for _, i := range n.Status.Images {
			if slices.Contains(i.Names, image) {
				out = i.SizeBytes
			}
		}
		return out
	}
	var sum, containers int64
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		containers++
		image, having := c.Image, 0
		if !strings.Contains(image, ":") {
			image += ":latest"
		}
		for _, n := range nodes {
			if size(n, image) > 0 {
				having++
			}
		}
		sum += int64(float64(size(node, image)) * (float64(having) / float64(len(nodes))))
	}
	const mb = 1024 * 1024
	sum = min(max(sum, 23*mb), containers*1000*mb)
	return 100 * (sum - 23*mb) / (containers*1000*mb - 23*mb)
}

func TestAgreesWithReference(t *testing.T) {
	seen := map[int64]bool{}
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 5))
		snap := snapshot.New()
		scheduler := framework.New([]framework.Weighted{{Plugin: imagelocality.Plugin{}, Weight: 1}}, nil)
		pod := &corev1.Pod{}
		for range 1 + r.IntN(2) {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Image: []string{"a", "b:latest", "registry:5000/c"}[r.IntN(3)]})
		}
		for range 60 {
			frameworktest.Change(r, snap)
			var nodes []*corev1.Node
			for row := range snap.Rows() {
				if n := snap.At(row); n.Exists() {
					nodes = append(nodes, n.Object())
				}
			}
			if len(nodes) == 0 {
				continue
			}
			want := map[string]int64{}
			best := int64(0)
			for _, n := range nodes {
				want[n.Name] = reference(pod, nodes, n)
				best = max(best, want[n.Name])
				seen[want[n.Name]] = true
			}
			got, err := scheduler.Schedule(snap, snapshot.NewPod(pod))
			if err != nil || got.Score != best || want[got.Node] != best {
				t.Fatalf("seed %d: got %+v, %v; want %v", seed, got, err, fmt.Sprint(want))
			}
		}
	}
	if len(seen) < 5 {
		t.Errorf("scores %v: the clusters test too little", seen)
	}
}
