package nodelifecycle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func node(conditions string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", CreationTimestamp: metav1.Time{Time: now.Add(-time.Hour)}}}
	for _, word := range strings.Fields(conditions) {
		t, s, _ := strings.Cut(word, "=")
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeConditionType(t), Status: corev1.ConditionStatus(s)})
	}
	return n
}

func show(taints []corev1.Taint) string {
	var out []string
	for _, t := range taints {
		text := strings.TrimPrefix(t.Key, "node.kubernetes.io/") + ":" + string(t.Effect)
		if t.TimeAdded != nil {
			text += "@" + t.TimeAdded.UTC().Format("15:04")
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func TestTaints(t *testing.T) {
	old := corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: now.Add(-time.Hour)}}
	users := corev1.Taint{Key: "mine", Effect: corev1.TaintEffectNoSchedule}
	tests := map[string]struct {
		reason     string
		conditions string
		cordoned   bool
		evict      bool
		have       []corev1.Taint
		want       string
	}{
		"Healthy":   {"nothing is wrong", "Ready=True MemoryPressure=False", false, false, nil, ""},
		"Pressure":  {"no new pods on a node that is short of something", "Ready=True MemoryPressure=True DiskPressure=True PIDPressure=True", false, false, nil, "memory-pressure:NoSchedule disk-pressure:NoSchedule pid-pressure:NoSchedule"},
		"NoNetwork": {"nor without a network", "Ready=True NetworkUnavailable=True", false, false, nil, "network-unavailable:NoSchedule"},
		"Cordoned":  {"nor when the user says so", "Ready=True", true, false, nil, "unschedulable:NoSchedule"},
		"NotReady":  {"it says itself that it is not ready", "Ready=False", false, true, nil, "not-ready:NoSchedule not-ready:NoExecute@12:00"},
		"Silent":    {"it says nothing any more", "Ready=Unknown MemoryPressure=Unknown", false, true, nil, "unreachable:NoSchedule unreachable:NoExecute@12:00"},
		"NotNow":    {"the rate does not allow more evictions", "Ready=Unknown", false, false, nil, "unreachable:NoSchedule"},
		"Standing":  {"a taint that stands keeps its time: patience counts from it", "Ready=Unknown", false, true, []corev1.Taint{old}, "unreachable:NoExecute@11:00 unreachable:NoSchedule"},
		"Back":      {"what is over goes, what others set stays", "Ready=True", false, false, []corev1.Taint{old, users}, "mine:NoSchedule"},
		"Spoke":     {"it was silent and now says that it is not ready", "Ready=False", false, true, []corev1.Taint{old}, "not-ready:NoSchedule not-ready:NoExecute@12:00"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			n := node(tc.conditions)
			n.Spec.Unschedulable = tc.cordoned
			got, changed := retaint(tc.have, wanted(n, tc.evict), now)
			if show(got) != tc.want || changed != (show(got) != show(tc.have)) {
				t.Errorf("%s: got %s (changed %v), want %s", tc.reason, show(got), changed, tc.want)
			}
		})
	}
}

func TestSilenced(t *testing.T) {
	text := func(n *corev1.Node) (out string) {
		for _, c := range n.Status.Conditions {
			out += fmt.Sprintf("%s=%s %s; ", c.Type, c.Status, c.Reason)
		}
		return out
	}
	got := silenced(node("Ready=True MemoryPressure=True NetworkUnavailable=False DiskPressure=Unknown"), now)
	want := "Ready=Unknown NodeStatusUnknown; MemoryPressure=Unknown NodeStatusUnknown; NetworkUnavailable=False ; DiskPressure=Unknown ; PIDPressure=Unknown NodeStatusNeverUpdated; "
	if text(got) != want {
		t.Errorf("\n got %s\nwant %s", text(got), want)
	}
	if again := silenced(got, now.Add(time.Hour)); again != got {
		t.Error("said once is enough")
	}
}

func TestRate(t *testing.T) {
	o := Defaults()
	tests := map[string]struct {
		zone census
		want float64
	}{
		"one of ten":                     {census{9, 1}, 0.1},
		"two of three: small numbers":    {census{1, 2}, 0.1},
		"most of a small zone":           {census{10, 30}, 0},
		"most of a big zone":             {census{40, 60}, 0.01},
		"a whole zone, others are ready": {census{0, 30}, 0.1},
	}
	for name, tc := range tests {
		if got := tc.zone.rate(o); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestSilenceIsOurOwnClock(t *testing.T) {
	h := newHealth()
	lease := func(renewed time.Time) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: renewed}}}
	}
	n := node("Ready=True")
	wrong := now.Add(-100 * time.Hour) // the node's clock
	if d := h.observe(n, lease(wrong), now); d != 0 {
		t.Errorf("silent for %s at first sight", d)
	}
	if d := h.observe(n, lease(wrong), now.Add(30*time.Second)); d != 30*time.Second {
		t.Errorf("silent for %s, want 30s", d)
	}
	if d := h.observe(n, lease(wrong.Add(time.Second)), now.Add(31*time.Second)); d != 0 {
		t.Errorf("silent for %s after a heartbeat", d)
	}
	if d := h.observe(node("Ready=Unknown"), lease(wrong.Add(time.Second)), now.Add(40*time.Second)); d != 9*time.Second {
		t.Errorf("silent for %s, want 9s: our own note is no heartbeat", d)
	}
	h.setDisrupted(true, now.Add(time.Minute))
	if !h.setDisrupted(false, now.Add(2*time.Minute)) {
		t.Error("the cluster is back")
	}
	if d := h.observe(node("Ready=Unknown"), lease(wrong.Add(time.Second)), now.Add(2*time.Minute)); d != 0 {
		t.Errorf("silent for %s, want 0: it was not its fault", d)
	}
}
