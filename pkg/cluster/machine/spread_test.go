package machine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSuperfluous checks that a cluster DNS pod is moved only if all run on one
// other node.
func TestSuperfluous(t *testing.T) {
	pod := func(name, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node}}
	}
	going := pod("b", "first")
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	for name, row := range map[string]struct {
		reason string
		pods   []*corev1.Pod
		want   string
	}{
		"AllOnOne": {"the first machine had to take both", []*corev1.Pod{pod("a", "first"), pod("b", "first")}, "b"},
		"Apart":    {"either may be lost", []*corev1.Pod{pod("a", "first"), pod("b", "worker")}, ""},
		"AllHere":  {"nobody knows a better place than this machine", []*corev1.Pod{pod("a", "second"), pod("b", "second")}, ""},
		"Moving":   {"another machine's join has begun it", []*corev1.Pod{pod("a", "first"), going}, ""},
		"Waiting":  {"the next one has no place yet", []*corev1.Pod{pod("a", "first"), pod("b", "")}, ""},
		"Nowhere":  {"none has a place", []*corev1.Pod{pod("a", ""), pod("b", "")}, ""},
		"Alone":    {"there would be none for a moment", []*corev1.Pod{pod("a", "first")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if p := superfluous(row.pods, "second"); p != nil {
				got = p.Name
			}
			if got != row.want {
				t.Errorf("%s: moves %q, want %q", row.reason, got, row.want)
			}
		})
	}
}
