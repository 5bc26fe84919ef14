package controllers_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// cidr returns a ServiceCIDR's condition Ready as text, "gone" if there is none.
func (c *cluster) cidr(name string) string {
	o, err := client.For[*networkingv1.ServiceCIDR](c.Client).Get(c.t.Context(), name)
	if err != nil {
		return "gone"
	}
	var out []string
	for _, ready := range o.Status.Conditions {
		out = append(out, ready.Type, string(ready.Status), ready.Reason, ready.Message)
	}
	if slices.Contains(o.Finalizers, "networking.k8s.io/service-cidr-finalizer") {
		out = append(out, "protected")
	}
	return strings.Join(out, "; ")
}

const (
	cidrReady = "Ready; True; ; Kubernetes Service CIDR is ready; protected"
	cidrStays = "Ready; False; Terminating; There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR; protected"
)

func newCIDR(name, cidr string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{cidr}}}
}

func serviceAt(name, ip string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80}}}}
}

func TestServiceCIDRWithAddressesIsProtected(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		is := func(name, want string) {
			t.Helper()
			c.until(time.Minute, name+" is: "+want, func() bool { return c.cidr(name) == want })
		}
		is("kubernetes", cidrReady)
		create(c, newCIDR("more", "192.168.7.0/24"))
		is("more", cidrReady)
		create(c, serviceAt("web", "192.168.7.9"))
		time.Sleep(time.Minute)
		c.quiet()

		remove[*networkingv1.ServiceCIDR](c, "more", metav1.DeletePropagationBackground)
		is("more", cidrStays)
		if _, err := client.For[*corev1.Service](c.Client).In("default").Create(t.Context(), serviceAt("late", "192.168.7.10")); err == nil ||
			!strings.Contains(err.Error(), "the provided network does not match the current range") {
			t.Errorf("an address of a deleted range: %v", err)
		}
		c.restartControllers()
		time.Sleep(time.Hour)
		is("more", cidrStays)
		c.quiet()

		create(c, newCIDR("other", "192.168.0.0/16")) // it takes over the address
		is("more", "gone")
		is("other", cidrReady)
		remove[*networkingv1.ServiceCIDR](c, "other", metav1.DeletePropagationBackground)
		is("other", cidrStays)
		remove[*corev1.Service](c, "web", metav1.DeletePropagationBackground)
		is("other", "gone")
		c.quiet()
	})
}
