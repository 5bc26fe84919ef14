package nodelifecycle

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCensus covers the counts of a zone without one node, and that many nodes share one
// count.
func TestCensus(t *testing.T) {
	var c censuses
	counts, ready := 0, 4 // of 5 nodes in zone 0; the 5 of zone 1 are not ready
	node := func(zone, i int) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(zone, "-", i), Labels: map[string]string{corev1.LabelTopologyZone: fmt.Sprint(zone)}}}
	}
	count := func(_ time.Time, add func(*corev1.Node, bool)) {
		counts++
		for i := range 5 {
			add(node(0, i), i < ready)
			add(node(1, i), false)
		}
	}
	check := func(n *corev1.Node, now time.Time, want census, wantAny bool, wantCounts int) {
		t.Helper()
		if got, any := c.without(n, count, now); got != want || any != wantAny || counts != wantCounts {
			t.Errorf("without %s: %+v %v after %d counts, want %+v %v after %d", n.Name, got, any, counts, want, wantAny, wantCounts)
		}
	}
	now := time.Unix(1000, 0)
	check(node(0, 0), now, census{3, 2}, true, 1) // counted as ready
	check(node(0, 4), now, census{4, 1}, true, 1)
	check(node(1, 2), now.Add(censusEvery/2), census{0, 5}, true, 1)
	ready = 1
	check(node(0, 0), now.Add(censusEvery), census{0, 5}, false, 2) // the only one that is ready
	check(node(0, 1), now.Add(censusEvery), census{1, 4}, true, 2)
}
