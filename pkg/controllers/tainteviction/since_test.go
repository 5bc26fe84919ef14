package tainteviction

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A taint's age counts from its time, but not from one in the future, which another clock
// has recorded: such a taint is new when it is first seen, and then it ages.
func TestSince(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(d)} }
	for name, tc := range map[string]struct {
		added *metav1.Time
		want  time.Duration
	}{
		"Past":    {at(-time.Minute), 2 * time.Minute},
		"Future":  {at(time.Hour), time.Minute},
		"Unknown": {nil, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			r := &reconciler{}
			taint := corev1.Taint{Key: "out", Effect: corev1.TaintEffectNoExecute, TimeAdded: tc.added}
			r.since("node", []corev1.Taint{taint}, now)
			again := *taint.DeepCopy() // as another copy of the Node has it
			later := now.Add(time.Minute)
			if got := later.Sub(r.since("node", []corev1.Taint{again}, later)(again)); got != tc.want {
				t.Errorf("after a minute it is %v old, want %v", got, tc.want)
			}
			r.since("node", nil, later)
			if got := later.Sub(r.since("node", []corev1.Taint{again}, later)(again)); tc.added == nil && got != 0 {
				t.Errorf("a taint that was removed is remembered: it is %v old", got)
			}
		})
	}
}
