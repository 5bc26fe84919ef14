package resources

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

// amounts returns a random list: often without a resource, at times with a huge amount.
func amounts(r *rand.Rand, most int64) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		switch r.IntN(6) {
		case 0:
		case 1:
			out[name] = *resource.NewQuantity(r.Int64N(1<<46), resource.BinarySI)
		default:
			out[name] = *resource.NewMilliQuantity(r.Int64N(most*1000), resource.DecimalSI)
		}
	}
	return out
}

func randomSnapshot(r *rand.Rand) *snapshot.Snapshot {
	snap := snapshot.New()
	for i := range 60 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
		n.Status.Allocatable = amounts(r, 100)
		n.Status.Allocatable[corev1.ResourcePods] = *resource.NewQuantity(r.Int64N(4), resource.DecimalSI)
		snap.SetNode(n)
		for j := range r.IntN(3) {
			snap.Assume(randomPod(r, fmt.Sprint(i, "-", j)), n.Name)
		}
	}
	for i := range 5 {
		snap.RemoveNode(fmt.Sprint("n", i*7))
	}
	return snap
}

func randomPod(r *rand.Rand, name string) *snapshot.Pod {
	c := corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: amounts(r, 20)}}
	return snapshot.NewPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{Containers: []corev1.Container{c}},
	})
}

// What the plugins answer for ranges is what they answer for each node.
func TestRangesAgreeWithNodes(t *testing.T) {
	fit, err := NewFit(FitArgs{})
	if err != nil {
		t.Fatal(err)
	}
	weighted, err := NewFit(FitArgs{ScoringStrategy: &Strategy{Resources: []Resource{{corev1.ResourceCPU, 3}, {corev1.ResourceMemory, 4}}}})
	if err != nil {
		t.Fatal(err)
	}
	balanced, err := NewBalanced(nil)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		snap, pod := randomSnapshot(r), randomPod(r, "pod")
		from := r.IntN(snap.Rows())
		until := from + r.IntN(snap.Rows()-from+1)
		one, rejected := fit.PreFilter(pod), map[int]bool{}
		fit.PreFilterRange(pod)(snap, from, until, func(row int) { rejected[row] = true })
		for row := range snap.Rows() {
			want := row >= from && row < until && one(snap.At(row)) != nil
			if snap.At(row).Exists() && rejected[row] != want {
				t.Fatalf("seed %d, row %d: rejected is %v", seed, row, !want)
			}
		}
		for name, p := range map[string]framework.RangeScorePlugin{"Fit": fit, "Weighted": weighted, "Balanced": balanced} {
			one, all := p.PreScore(pod), p.PreScoreRange(pod)
			if all == nil && one == nil {
				continue // a pod without requests
			}
			sums := make([]int64, until-from)
			for i := range sums {
				sums[i] = 7
			}
			all(snap, from, 2, sums)
			for i, sum := range sums {
				if n := snap.At(from + i); n.Exists() && sum != 7+2*one(n) {
					t.Fatalf("seed %d, %s, row %d: %d, want 7 + 2 * %d", seed, name, from+i, sum, one(n))
				}
			}
		}
	}
}

// Floating-point division rounds no quotient up to the next integer.
func TestFreeIsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		capacity := 1 + r.Int64N(1<<r.IntN(50))
		left := r.Int64N(capacity + 1)
		if r.IntN(2) == 0 { // just below an integer, or at it
			left = min(capacity, (r.Int64N(101)*capacity+framework.MaxNodeScore-1)/framework.MaxNodeScore-r.Int64N(2))
		}
		want := max(0, left) * framework.MaxNodeScore / capacity
		if got := free(left, capacity); got != want {
			t.Fatalf("%d of %d: %d, want %d", left, capacity, got, want)
		}
	}
}
