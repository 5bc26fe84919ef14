package addons

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheme"
)

func TestObjects(t *testing.T) {
	objects, err := DNS{Address: netip.MustParseAddr("fd00::a"), Domain: "pod.test", Replicas: 3}.objects(scheme.New())
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, obj := range objects {
		kinds = append(kinds, strings.TrimPrefix(fmt.Sprintf("%T", obj), "*v1."))
		switch o := obj.(type) {
		case *corev1.Service:
			if o.Spec.ClusterIP != "fd00::a" {
				t.Errorf("the Service's address is %s", o.Spec.ClusterIP)
			}
		case *appsv1.Deployment:
			c := o.Spec.Template.Spec.Containers[0]
			if *o.Spec.Replicas != 3 || !strings.Contains(strings.Join(c.Args, " "), "--cluster-domain=pod.test") {
				t.Errorf("%d replicas, arguments %v", *o.Spec.Replicas, c.Args)
			}
		}
	}
	if got := strings.Join(kinds, " "); got != "ServiceAccount ClusterRole ClusterRoleBinding Service Deployment" {
		t.Errorf("the objects, those first that others need: %s", got)
	}
}
