package addons

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"podium/pkg/scheme"
)

func TestMetricsObjects(t *testing.T) {
	objects, err := Metrics{KubeletCA: []byte("a CA")}.objects(scheme.New())
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, obj := range objects {
		kinds = append(kinds, strings.TrimPrefix(fmt.Sprintf("%T", obj), "*v1."))
		switch o := obj.(type) {
		case *corev1.ConfigMap:
			if o.Name != "kubelet-serving-ca" || o.Data["ca.crt"] != "a CA" {
				t.Errorf("the ConfigMap %s has %v", o.Name, o.Data)
			}
		case *apiregistrationv1.APIService:
			if o.Spec.InsecureSkipTLSVerify || len(o.Spec.CABundle) > 0 || o.Spec.Service.Name != "metrics-server" {
				t.Errorf("the server must be verified by what it publishes: %+v", o.Spec)
			}
		case *rbacv1.ClusterRole:
			for _, r := range o.Rules {
				if slices.Contains(r.Verbs, "*") || slices.Contains(r.Resources, "*") || slices.Contains(r.Verbs, "patch") && len(r.ResourceNames) != 1 {
					t.Errorf("%s has more than the least rights: %+v", o.Name, r)
				}
			}
		case *appsv1.Deployment:
			mounts := o.Spec.Template.Spec.Containers[0].VolumeMounts
			if len(mounts) != 1 || !slices.ContainsFunc(o.Spec.Template.Spec.Containers[0].Args, func(a string) bool {
				return a == "--kubelet-certificate-authority="+mounts[0].MountPath+"/ca.crt"
			}) {
				t.Errorf("the pod does not use the ConfigMap: %+v", mounts)
			}
		}
	}
	want := "ConfigMap ServiceAccount ClusterRole ClusterRole ClusterRoleBinding ClusterRoleBinding RoleBinding Service APIService Deployment"
	if got := strings.Join(kinds, " "); got != want {
		t.Errorf("the objects, those first that others need: %s", got)
	}
}
