package controllers_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

func hard(limits map[string]string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range limits {
		out[corev1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

// used returns the usage of a quota as text, once its limits are in force.
func (c *cluster) used(name string) string {
	q, err := client.For[*corev1.ResourceQuota](c.Client).In("default").Get(context.Background(), name)
	if err != nil {
		c.t.Fatal(err)
	}
	var out []string
	for _, r := range slices.Sorted(maps.Keys(q.Status.Hard)) {
		if u, ok := q.Status.Used[r]; ok {
			out = append(out, fmt.Sprintf("%s=%s", r, u.String()))
		}
	}
	return strings.Join(out, ",")
}

func (c *cluster) usedSoon(name, want string) {
	c.t.Helper()
	c.until(10*time.Second, want, func() bool { return c.used(name) == want })
}

func quotaOf(name string, limits map[string]string, scopes ...corev1.ResourceQuotaScope) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard(limits), Scopes: scopes},
	}
}

func TestQuotaUsageFollowsDevices(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		create(c, &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gpus"},
			Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
				{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 2}},
			}}},
		})
		create(c, quotaOf("devices", map[string]string{"gpu.deviceclass.resource.k8s.io/devices": "3", "count/resourceclaims.resource.k8s.io": "3"}))
		c.usedSoon("devices", "count/resourceclaims.resource.k8s.io=1,gpu.deviceclass.resource.k8s.io/devices=2")
		remove[*resourcev1.ResourceClaim](c, "gpus", metav1.DeletePropagationBackground)
		c.usedSoon("devices", "count/resourceclaims.resource.k8s.io=0,gpu.deviceclass.resource.k8s.io/devices=0")
	})
}

func TestQuotaUsageFollowsObjects(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "before"}}
		c.until(time.Minute, "the CA is published", func() bool { return exists[*corev1.ConfigMap](c, "default", "kube-root-ca.crt") })
		create(c, config)
		create(c, quotaOf("counts", map[string]string{
			"pods": "3", "count/pods": "10", "configmaps": "3", "count/replicasets.apps": "2", "services": "2", "count/widgets.stable.example.com": "1",
		}))
		create(c, quotaOf("besteffort", map[string]string{"pods": "5"}, corev1.ResourceQuotaScopeBestEffort))
		create(c, quotaOf("ending", map[string]string{"pods": "5"}, corev1.ResourceQuotaScopeTerminating))
		c.usedSoon("counts", "configmaps=2,count/pods=0,count/replicasets.apps=0,pods=0,services=0")
		c.usedSoon("besteffort", "pods=0")

		create(c, deploymentOf("web", 5, "v1"))
		c.usedSoon("counts", "configmaps=2,count/pods=3,count/replicasets.apps=1,pods=3,services=0")
		c.usedSoon("besteffort", "pods=3")
		c.usedSoon("ending", "pods=0")
		if n := len(c.pods("app=web")); n != 3 {
			t.Errorf("%d pods, want 3", n)
		}

		remove[*corev1.ConfigMap](c, "before", metav1.DeletePropagationBackground)
		c.usedSoon("counts", "configmaps=1,count/pods=3,count/replicasets.apps=1,pods=3,services=0")
		remove[*appsv1.Deployment](c, "web", metav1.DeletePropagationBackground)
		c.until(time.Minute, "all usage is given back", func() bool {
			return c.used("counts") == "configmaps=1,count/pods=0,count/replicasets.apps=0,pods=0,services=0" && c.used("besteffort") == "pods=0"
		})
		c.quiet()
	})
}

// A charge for an object that was not stored is corrected without any event.
func TestQuotaForgetsFailedCreates(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		create(c, quotaOf("q", map[string]string{"count/secrets": "10"}))
		c.usedSoon("q", "count/secrets=0")
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}}
		create(c, secret)
		for range 3 {
			if _, err := client.For[*corev1.Secret](c.Client).Create(t.Context(), secret); err == nil {
				t.Error("created twice")
			}
		}
		c.usedSoon("q", "count/secrets=1")
		c.restartControllers()
		c.quiet()
		c.usedSoon("q", "count/secrets=1")
	})
}

// Limits that a client writes into a status stay when the controller begins to count a
// resource that another quota limits.
func TestQuotaStatusStaysWhenOthersCountMore(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		quotas := client.For[*corev1.ResourceQuota](c.Client).In("default")
		create(c, quotaOf("q", map[string]string{"pods": "5"}))
		c.usedSoon("q", "pods=0")
		c.quiet()
		q, err := quotas.Get(t.Context(), "q")
		if err != nil {
			t.Fatal(err)
		}
		q.Status.Hard = hard(map[string]string{"pods": "7"})
		if _, err := quotas.UpdateStatus(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		create(c, quotaOf("other", map[string]string{"count/secrets": "10"}))
		c.usedSoon("other", "count/secrets=0")
		time.Sleep(30 * time.Second) // of the bubble; less than a resync
		if q, err = quotas.Get(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
		if pods := q.Status.Hard["pods"]; pods.String() != "7" {
			t.Errorf("the status limits pods to %s, want 7", pods.String())
		}
	})
}
