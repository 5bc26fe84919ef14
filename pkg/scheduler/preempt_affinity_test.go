package scheduler_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/scheduler"
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

func unfriendly(r *rand.Rand, name string) *corev1.Pod {
	p := important(name, pick(r, "100m", "1"), pick(r, int32(0), 1, 2, 3))
	p.Labels = map[string]string{"app": pick(r, "x", "y", "z")}
	if oneIn(r, 3) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: pick(r, "zone", corev1.LabelHostname), LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": pick(r, "x", "y")}}}}}}
	}
	return p
}

// TestEachVictimIsNeeded has pods with required anti-affinity, which makes the answer for a node
// depend on others. The pod must fit on its nominated node without the victims, and not beside
// any one of them.
func TestEachVictimIsNeeded(t *testing.T) {
	victims, byAffinity := 0, 0
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 17))
		snap, algorithm := snapshot.New(), scheduler.NewAlgorithm(nil)
		for i := range 5 {
			n := node(fmt.Sprint("n", i), "4", "64Gi")
			n.Labels = map[string]string{"zone": fmt.Sprint(i % 2), corev1.LabelHostname: n.Name}
			snap.SetNode(n)
		}
		for step := range 60 {
			pod := snapshot.NewPod(unfriendly(r, fmt.Sprint("p", step)))
			place, err := algorithm.Schedule(snap, pod)
			var fit *framework.FitError
			if errors.As(err, &fit) {
				n := algorithm.PostFilter(snap, pod, fit)
				if n.Node == "" {
					continue
				}
				snap.Nominate(pod, n.Node)
				for _, v := range n.Victims {
					snap.Remove(v.UID)
				}
				for _, v := range n.Victims {
					victims++
					if v.Spec.Affinity != nil || pod.Spec.Affinity != nil {
						byAffinity++
					}
					back := snap.Assume(v, n.Node)
					if place, err := algorithm.Schedule(snap, pod); err == nil && place.Node == n.Node {
						t.Fatalf("seed %d, step %d: victim %s is not needed", seed, step, v.Name)
					}
					back()
				}
				if place, err = algorithm.Schedule(snap, pod); err != nil || place.Node != n.Node {
					t.Fatalf("seed %d, step %d: %d victims in vain: %+v, %v", seed, step, len(n.Victims), place, err)
				}
				snap.Unnominate(pod.UID)
			}
			snap.Assume(pod, place.Node)
		}
	}
	if victims < 500 || byAffinity < 100 {
		t.Errorf("%d victims, %d of them of or for pods with anti-affinity: too few", victims, byAffinity)
	}
}
