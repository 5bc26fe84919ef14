package conditions

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSet(t *testing.T) {
	at := func(minute int) metav1.Time { return metav1.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC) }
	ready := func(status corev1.ConditionStatus, reason string, minute int) corev1.PodCondition {
		return corev1.PodCondition{Type: corev1.PodReady, Status: status, Reason: reason, LastTransitionTime: at(minute)}
	}
	other := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: at(0)}
	for name, row := range map[string]struct {
		reason    string
		have      []corev1.PodCondition
		set       corev1.PodCondition
		wantReady corev1.PodCondition
	}{
		"Appended":   {"the list has none of the type", []corev1.PodCondition{other}, ready("True", "a", 1), ready("True", "a", 1)},
		"Transition": {"another status is a transition", []corev1.PodCondition{ready("False", "a", 1), other}, ready("True", "b", 2), ready("True", "b", 2)},
		"SameStatus": {"another reason is not", []corev1.PodCondition{other, ready("True", "a", 1)}, ready("True", "b", 2), ready("True", "b", 1)},
	} {
		got := Set(row.have, row.set)
		if diff := cmp.Diff(&row.wantReady, Find(got, corev1.PodReady)); diff != "" || len(got) != 2 {
			t.Errorf("%s: %s: %d conditions\n%s", name, row.reason, len(got), diff)
		}
		if Status(got, corev1.PodScheduled) != corev1.ConditionTrue || !IsTrue(got, corev1.PodReady) {
			t.Errorf("%s: %v", name, got)
		}
		if got = Remove(got, corev1.PodReady); len(got) != 1 || Find(got, corev1.PodReady) != nil {
			t.Errorf("%s: after Remove: %v", name, got)
		}
	}
}

// Every type of the constraint has its fields.
func TestFields(t *testing.T) {
	check := func(kind string, same bool) {
		if !same {
			t.Error(kind)
		}
	}
	check("node", IsTrue([]corev1.NodeCondition{{Type: "x", Status: "True"}}, "x"))
	check("namespace", IsTrue([]corev1.NamespaceCondition{{Type: "x", Status: "True"}}, "x"))
	check("deployment", IsTrue([]appsv1.DeploymentCondition{{Type: "x", Status: "True"}}, "x"))
	check("replicaset", IsTrue([]appsv1.ReplicaSetCondition{{Type: "x", Status: "True"}}, "x"))
}
