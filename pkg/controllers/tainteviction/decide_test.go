package tainteviction

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestStay(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	taint := func(key, value string) corev1.Taint {
		return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoExecute}
	}
	seconds := func(t corev1.Toleration, s int64) corev1.Toleration { t.TolerationSeconds = &s; return t }
	any := corev1.Toleration{Operator: corev1.TolerationOpExists}
	a := corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists}
	aIsX := corev1.Toleration{Key: "a", Value: "x"}
	onlySchedule := corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	tests := map[string]struct {
		reason      string
		taints      []corev1.Taint
		tolerations []corev1.Toleration
		want        time.Duration // with taints added 10 s ago
	}{
		"None":         {"no patience at all", []corev1.Taint{taint("a", "")}, nil, 0},
		"Forever":      {"no limit is no limit", []corev1.Taint{taint("a", "")}, []corev1.Toleration{a}, forever},
		"Everything":   {"an empty key with Exists tolerates all", []corev1.Taint{taint("a", ""), taint("b", "")}, []corev1.Toleration{any}, forever},
		"AWhile":       {"counted from the taint", []corev1.Taint{taint("a", "")}, []corev1.Toleration{seconds(a, 30)}, 20 * time.Second},
		"Over":         {"the while is over", []corev1.Taint{taint("a", "")}, []corev1.Toleration{seconds(a, 5)}, -5 * time.Second},
		"AtOnce":       {"0 seconds and less is at once", []corev1.Taint{taint("a", "")}, []corev1.Toleration{seconds(a, -7)}, -10 * time.Second},
		"LeastPatient": {"of two that match the shorter counts", []corev1.Taint{taint("a", "")}, []corev1.Toleration{seconds(a, 30), seconds(any, 60)}, 20 * time.Second},
		"TwoTaints":    {"all must be tolerated", []corev1.Taint{taint("a", ""), taint("b", "")}, []corev1.Toleration{a}, 0},
		"Value":        {"Equal compares the value", []corev1.Taint{taint("a", "x")}, []corev1.Toleration{aIsX}, forever},
		"OtherValue":   {"and another value is another taint", []corev1.Taint{taint("a", "y")}, []corev1.Toleration{aIsX}, 0},
		"Effect":       {"tolerating NoSchedule is not tolerating NoExecute", []corev1.Taint{taint("a", "")}, []corev1.Toleration{onlySchedule}, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := stay(tc.taints, tc.tolerations, func(corev1.Taint) time.Time { return now.Add(-10 * time.Second) }, now)
			if got != tc.want {
				t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}
