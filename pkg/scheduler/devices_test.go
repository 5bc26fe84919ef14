package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/scheduler"
)

// gpus is a cluster of the nodes a and b with the class gpu. The test plays the controllers
// and the driver.
type gpus struct {
	t      *testing.T
	api    *client.Client
	pods   client.Resource[*corev1.Pod]
	claims client.Resource[*resourcev1.ResourceClaim]
	slices client.Resource[*resourcev1.ResourceSlice]
}

func newGPUs(t *testing.T) *gpus {
	c := realWorld(t)
	g := &gpus{
		t: t, api: c, pods: client.For[*corev1.Pod](c).In("default"), claims: client.For[*resourcev1.ResourceClaim](c).In("default"),
		slices: client.For[*resourcev1.ResourceSlice](c),
	}
	for _, name := range []string{"a", "b"} {
		addNode(t, c, node(name, "40", "8Gi"))
	}
	_, err := client.For[*resourcev1.DeviceClass](c).Create(t.Context(), &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu"},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{
			CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu.example.com"`},
		}}},
	})
	g.must(err)
	return g
}

func withGPUs(t *testing.T, f func(g *gpus)) {
	synctest.Test(t, func(t *testing.T) {
		g := newGPUs(t)
		stop := run(t, scheduler.Config{Client: g.api})
		f(g)
		stop()
	})
}

func (g *gpus) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// slice publishes devices of a node.
func (g *gpus) slice(node string, devices ...string) {
	g.t.Helper()
	g.publish(gpuSlice(node, devices...))
}

// publish creates s, and returns when the scheduler has seen it.
func (g *gpus) publish(s *resourcev1.ResourceSlice) {
	g.t.Helper()
	_, err := g.slices.Create(g.t.Context(), s)
	g.must(err)
	synctest.Wait()
}

func gpuSlice(node string, devices ...string) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node + "-gpu"},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		},
	}
	for _, name := range devices {
		kind, _, _ := strings.Cut(name, "-")
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"kind": {StringValue: &kind}}})
	}
	return s
}

func (g *gpus) claim(name string, count int64) {
	g.t.Helper()
	_, err := g.claims.Create(g.t.Context(), gpuClaim(name, count))
	g.must(err)
}

func gpuClaim(name string, count int64) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", Count: count},
		}}}},
	}
}

func (g *gpus) pod(name, claim string) *corev1.Pod {
	g.t.Helper()
	p := realPod(name, "10m")
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}}
	p, err := g.pods.Create(g.t.Context(), p)
	g.must(err)
	return p
}

// on wants a pod to be on a node, "" for none, after a while, for that reason.
func (g *gpus) on(pod, node, reason string) {
	g.t.Helper()
	time.Sleep(2 * time.Minute)
	p, err := g.pods.Get(g.t.Context(), pod)
	g.must(err)
	if got := condition(p); p.Spec.NodeName != node || !strings.Contains(got, reason) {
		g.t.Errorf("%s is on %q, want %q: %s", pod, p.Spec.NodeName, node, got)
	}
}

// devices returns what a claim has, and the pods for which it is reserved.
func (g *gpus) devices(claim string) string {
	g.t.Helper()
	c, err := g.claims.Get(g.t.Context(), claim)
	g.must(err)
	var out []string
	if c.Status.Allocation != nil {
		for _, r := range c.Status.Allocation.Devices.Results {
			out = append(out, r.Pool+"/"+r.Device)
		}
		if !slices.Contains(c.Finalizers, resourcev1.Finalizer) {
			out = append(out, "without finalizer")
		}
	}
	for _, r := range c.Status.ReservedFor {
		out = append(out, "for "+r.Name)
	}
	return strings.Join(out, " ")
}

// free does what the controller does once the pods of a claim are gone.
func (g *gpus) free(claim string) {
	g.t.Helper()
	c, err := g.claims.Get(g.t.Context(), claim)
	g.must(err)
	c.Status = resourcev1.ResourceClaimStatus{}
	_, err = g.claims.UpdateStatus(g.t.Context(), c)
	g.must(err)
}

func TestPodsGetDevices(t *testing.T) {
	withGPUs(t, func(g *gpus) {
		const none = "0/2 nodes are available: 2 cannot allocate all claims. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
		g.pod("p", "two")
		g.on("p", "", `0/2 nodes are available: 2 resourceclaim "two" not found.`)
		g.claim("two", 2)
		g.on("p", "", none)
		g.slice("a", "gpu-0")
		g.on("p", "", none)
		g.slice("b", "gpu-0", "gpu-1", "gpu-2")
		g.on("p", "b", "")
		if got := g.devices("two"); got != "b/gpu-0 b/gpu-1 for p" {
			g.t.Errorf("the claim has %s", got)
		}

		g.claim("other", 2)
		g.pod("q", "other")
		g.on("q", "", none)
		g.must(g.pods.Delete(g.t.Context(), "p", metav1.DeleteOptions{}))
		g.free("two")
		g.on("q", "b", "")
	})
}

func TestPodsShareAClaim(t *testing.T) {
	withGPUs(t, func(g *gpus) {
		g.slice("b", "gpu-0")
		g.claim("shared", 1)
		for i := range 20 {
			g.pod(fmt.Sprintf("p%d", i), "shared")
		}
		time.Sleep(5 * time.Minute)
		for i := range 20 {
			g.on(fmt.Sprintf("p%d", i), "b", "")
		}
		if got := g.devices("shared"); strings.Count(got, " for p") != 20 || !strings.HasPrefix(got, "b/gpu-0 for") {
			g.t.Errorf("the claim has %s", got)
		}
	})
}

func TestPodsWaitForTheClaimOfATemplate(t *testing.T) {
	withGPUs(t, func(g *gpus) {
		g.slice("a", "gpu-0")
		p := realPod("p", "10m")
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("template")}}
		_, err := g.pods.Create(g.t.Context(), p)
		g.must(err)
		g.on("p", "", `2 waiting for dynamic resource controller to create the resourceclaim "gpu".`)
		g.claim("p-gpu-x", 1)
		p, err = g.pods.Get(g.t.Context(), "p")
		g.must(err)
		p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: new("p-gpu-x")}}
		_, err = g.pods.UpdateStatus(g.t.Context(), p)
		g.must(err)
		g.on("p", "", "ResourceClaim default/p-gpu-x was not created for pod default/p (pod is not owner)")
		c, err := g.claims.Get(g.t.Context(), "p-gpu-x")
		g.must(err)
		c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(p, corev1.SchemeGroupVersion.WithKind("Pod"))}
		_, err = g.claims.Update(g.t.Context(), c)
		g.must(err)
		g.on("p", "a", "")
	})
}

// A claim that an earlier pod has left allocated on a node without room is freed.
func TestUnusedClaimsAreFreedForAnotherNode(t *testing.T) {
	withGPUs(t, func(g *gpus) {
		g.slice("a", "gpu-0")
		g.claim("data", 1)
		g.pod("first", "data")
		g.on("first", "a", "")
		g.must(g.pods.Delete(g.t.Context(), "first", metav1.DeleteOptions{}))
		c, err := g.claims.Get(g.t.Context(), "data")
		g.must(err)
		c.Status.ReservedFor = nil
		_, err = g.claims.UpdateStatus(g.t.Context(), c)
		g.must(err)
		full := realPod("full", "40")
		full.Spec.NodeName = "a"
		_, err = g.pods.Create(g.t.Context(), full)
		g.must(err)
		g.slice("b", "gpu-0")
		g.pod("second", "data")
		g.on("second", "b", "")
		if got := g.devices("data"); got != "b/gpu-0 for second" {
			g.t.Errorf("the claim has %s", got)
		}
	})
}

// waiting publishes devices of node a that must be connected before a pod is bound.
func (g *gpus) waiting(devices ...string) {
	g.t.Helper()
	s := gpuSlice("a", devices...)
	for i := range s.Spec.Devices {
		s.Spec.Devices[i].BindingConditions, s.Spec.Devices[i].BindingFailureConditions = []string{"Connected"}, []string{"Broken"}
	}
	g.publish(s)
}

// reports sets a condition of the claim's device.
func (g *gpus) reports(claim, condition string) {
	g.t.Helper()
	c, err := g.claims.Get(g.t.Context(), claim)
	g.must(err)
	r := c.Status.Allocation.Devices.Results[0]
	c.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: r.Driver, Pool: r.Pool, Device: r.Device, Conditions: []metav1.Condition{{
		Type: condition, Status: metav1.ConditionTrue, Reason: "Test", Message: "the test says so", LastTransitionTime: metav1.Now(),
	}}}}
	_, err = g.claims.UpdateStatus(g.t.Context(), c)
	g.must(err)
}

// Pods are bound when the binding conditions of their devices are true. Pods that wait do not keep
// others from being bound.
func TestPodsAwaitTheConditionsOfDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGPUs(t)
		stop := run(t, scheduler.Config{Client: g.api, Binds: 1})
		g.waiting("gpu-0")
		g.claim("gpu", 1)
		g.pod("p", "gpu")
		g.pod("shares", "gpu")
		time.Sleep(time.Minute)
		if got := g.devices("gpu"); got != "a/gpu-0 for p for shares" {
			t.Errorf("the claim has %s", got)
		}
		g.on("p", "", "")
		_, err := g.pods.Create(t.Context(), realPod("other", "10m"))
		g.must(err)
		time.Sleep(time.Minute)
		if other, err := g.pods.Get(t.Context(), "other"); err != nil || other.Spec.NodeName == "" {
			t.Errorf("a pod without devices waits: %v", err)
		}
		stop()
		stop = run(t, scheduler.Config{Client: g.api, Binds: 1}) // it waits for what the first one has allocated
		time.Sleep(time.Minute)
		g.on("p", "", "")
		g.reports("gpu", "Connected")
		g.on("p", "a", "")
		g.on("shares", "a", "")
		stop()
	})
}

// Devices that are not ready in time, or say that they will not be, are given back.
func TestDevicesThatAreNotReadyAreGivenBack(t *testing.T) {
	withGPUs(t, func(g *gpus) {
		g.waiting("gpu-0")
		g.claim("gpu", 1)
		g.pod("p", "gpu")
		g.pod("shares", "gpu")
		time.Sleep(time.Minute)
		g.reports("gpu", "Broken")
		g.slice("b", "gpu-0")
		a, err := client.For[*corev1.Node](g.api).Get(g.t.Context(), "a")
		g.must(err)
		a.Spec.Unschedulable = true
		_, err = client.For[*corev1.Node](g.api).Update(g.t.Context(), a)
		g.must(err)
		time.Sleep(5 * time.Minute) // the two pods give it up in turns
		g.on("p", "b", "")
		g.on("shares", "b", "")
		if got := g.devices("gpu"); !strings.HasPrefix(got, "b/gpu-0 for ") || strings.Count(got, " for ") != 2 {
			g.t.Errorf("the claim has %s", got)
		}
	})
	withGPUs(t, func(g *gpus) {
		g.waiting("gpu-0")
		g.claim("gpu", 1)
		g.pod("p", "gpu")
		time.Sleep(11 * time.Minute)
		p, err := g.pods.Get(g.t.Context(), "p")
		g.must(err)
		list, err := client.For[*corev1.Event](g.api).In("default").List(g.t.Context(), metav1.ListOptions{})
		g.must(err)
		if !slices.ContainsFunc(list.Items, func(e *corev1.Event) bool {
			return e.Reason == "FailedScheduling" && strings.Contains(e.Message, "binding of devices failed: devices were not ready within 10m0s")
		}) || p.Spec.NodeName != "" {
			g.t.Errorf("the pod is on %q; events: %v", p.Spec.NodeName, list.Items)
		}
	})
}
