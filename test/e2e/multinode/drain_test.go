package multinode

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// TestDrain moves an app off a node, which gets no pods until it is uncordoned.
func TestDrain(t *testing.T) {
	s := the.space(t)
	s.Apply(web)
	s.RolledOut("web", time.Minute)
	t.Cleanup(func() {
		if _, err := s.Try(context.Background(), "", "uncordon", worker1); err != nil {
			t.Error(err)
		}
	})
	t.Log(s.Podium(t, "drain", worker1, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout", "1m"))
	s.RolledOut("web", time.Minute)
	list, err := client.For[*corev1.Pod](s.API).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + worker1})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		if owner := metav1.GetControllerOf(p); owner == nil || owner.Kind != "DaemonSet" {
			t.Errorf("%s/%s is on the node that was drained", p.Namespace, p.Name)
		}
	}
	s.Podium(t, "scale", "-n", s.Namespace, "deployment/web", "--replicas", "4")
	s.RolledOut("web", time.Minute)
	s.onlyOn("web", worker2, 4, 10*time.Second)
	s.Podium(t, "uncordon", worker1)
	s.Apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: back}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "localhost/podium/web:v1", imagePullPolicy: Never}]
`, worker1))
	s.Ready("back")
}
