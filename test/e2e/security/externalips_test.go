package security

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
)

// namespaceAdmin returns a client with the role "admin" in one namespace.
func namespaceAdmin(t *testing.T, namespace string) *client.Client {
	t.Helper()
	name := "admin-of-" + namespace
	_, err := client.For[*rbacv1.RoleBinding](admin).In(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "admin"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: name}},
	})
	check(t, err)
	tenant := impersonating(t, name)
	eventually(t, "the binding counts", func() error {
		_, err := client.For[*corev1.Service](tenant).In(namespace).List(t.Context(), metav1.ListOptions{})
		return err
	})
	return tenant
}

// The administrator of a namespace cannot create a Service that takes over addresses of nodes,
// of the API server or of other Services (CVE-2020-8554).
func TestServiceExternalIPs(t *testing.T) {
	ns, ctx := space(t), t.Context()
	tenant := namespaceAdmin(t, ns)
	services := client.For[*corev1.Service](tenant).In(ns)
	service := func(name string, spec corev1.ServiceSpec) *corev1.Service {
		spec.Ports = []corev1.ServicePort{{Port: 6443}}
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	}
	node, err := client.For[*corev1.Node](admin).Get(ctx, "node-a")
	check(t, err)
	api, err := client.For[*corev1.Service](admin).In("default").Get(ctx, "kubernetes")
	check(t, err)
	for what, ip := range map[string]string{
		"a node's address": node.Status.Addresses[0].Address, "the API's cluster IP": api.Spec.ClusterIP, "any address": "203.0.113.77",
	} {
		_, err := services.Create(ctx, service("taker", corev1.ServiceSpec{ExternalIPs: []string{ip}}))
		forbidden(t, "take over "+what, err)
		if err == nil || !strings.Contains(err.Error(), "Use of external IPs is denied by admission control") {
			t.Errorf("%s: %v", what, err)
		}
	}
	made, err := services.Create(ctx, service("plain", corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}))
	check(t, err)
	_, err = services.Patch(ctx, made.Name, types.MergePatchType, []byte(`{"spec":{"externalIPs":["203.0.113.77"]}}`))
	forbidden(t, "add an external IP", err)
	_, err = services.Patch(ctx, made.Name, types.MergePatchType, []byte(`{"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.77"}]}}}`), "status")
	forbidden(t, "say where a load balancer is", err)
	_, err = client.For[*corev1.Endpoints](tenant).In(ns).Create(ctx, &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "plain"}})
	forbidden(t, "write Endpoints", err)
	if _, err := services.Create(ctx, service("second", corev1.ServiceSpec{ClusterIP: api.Spec.ClusterIP})); err == nil {
		t.Error("a Service got the API's cluster IP")
	}
	if _, _, err := tenant.Do(ctx, client.Request{Method: http.MethodGet, Path: "/api"}); err != nil {
		t.Errorf("the API is not reached any more: %v", err)
	}
}
