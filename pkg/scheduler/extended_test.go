package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/scheduler"
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/snapshot"
)

const extendedGPU = "example.com/gpu"

// backs makes the class gpu stand for the extended resource.
func (g *gpus) backs() {
	g.t.Helper()
	classes := client.For[*resourcev1.DeviceClass](g.api)
	class, err := classes.Get(g.t.Context(), "gpu")
	g.must(err)
	class.Spec.ExtendedResourceName = new(extendedGPU)
	_, err = classes.Update(g.t.Context(), class)
	g.must(err)
}

// asks creates a pod that asks for an extended resource.
func (g *gpus) asks(name string, what corev1.ResourceName, count string) *corev1.Pod {
	g.t.Helper()
	p := realPod(name, "10m")
	list := corev1.ResourceList{what: resource.MustParse(count)}
	p.Spec.Containers[0].Resources.Limits = list
	p.Spec.Containers[0].Resources.Requests[what] = list[what]
	p, err := g.pods.Create(g.t.Context(), p)
	g.must(err)
	return p
}

// extended returns the devices of the claim that the pod's status names, and their use.
func (g *gpus) extended(pod string) string {
	g.t.Helper()
	p, err := g.pods.Get(g.t.Context(), pod)
	g.must(err)
	s := p.Status.ExtendedResourceClaimStatus
	if s == nil {
		return "none"
	}
	out := g.devices(s.ResourceClaimName)
	for _, m := range s.RequestMappings {
		out += fmt.Sprintf(", %s of %s: %s", m.ResourceName, m.ContainerName, m.RequestName)
	}
	claim, err := g.claims.Get(g.t.Context(), s.ResourceClaimName)
	g.must(err)
	if !metav1.IsControlledBy(claim, p) || claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" || !strings.HasPrefix(claim.Name, pod+"-extended-resources-") {
		g.t.Errorf("the claim of %s is %s of %v with %v", pod, claim.Name, claim.OwnerReferences, claim.Annotations)
	}
	return out
}

// ends does what the controllers do after the deletion of a pod.
func (g *gpus) ends(pod string) {
	g.t.Helper()
	p, err := g.pods.Get(g.t.Context(), pod)
	g.must(err)
	g.must(g.pods.Delete(g.t.Context(), pod, metav1.DeleteOptions{}))
	g.drop(p.Status.ExtendedResourceClaimStatus.ResourceClaimName)
}

// drop deletes a claim as its controller does.
func (g *gpus) drop(claim string) {
	g.t.Helper()
	g.free(claim)
	c, err := g.claims.Get(g.t.Context(), claim)
	g.must(err)
	c.Finalizers = nil
	if c, err = g.claims.Update(g.t.Context(), c); c.DeletionTimestamp == nil {
		g.must(err)
		g.must(g.claims.Delete(g.t.Context(), claim, metav1.DeleteOptions{}))
	}
}

func TestDevicesStandForExtendedResources(t *testing.T) {
	withGPUs(t, func(g *gpus) {
		g.slice("b", "gpu-0", "gpu-1", "gpu-2")
		g.asks("p", extendedGPU, "2")
		g.on("p", "", "0/2 nodes are available: 2 Insufficient example.com/gpu.")
		g.backs() // wakes it
		g.on("p", "b", "")
		if got, want := g.extended("p"), "b/gpu-0 b/gpu-1 for p, example.com/gpu of c: container-0-request-1"; got != want {
			g.t.Errorf("p has %s, want %s", got, want)
		}
		g.asks("q", "deviceclass.resource.kubernetes.io/gpu", "2")
		g.on("q", "", "2 cannot allocate all claims.")
		g.ends("p")
		g.on("q", "b", "")
		if got := g.extended("q"); !strings.HasPrefix(got, "b/gpu-0 b/gpu-1 for q, ") {
			g.t.Errorf("q has %s", got)
		}
	})
}

// Nodes that have the resource by a device plugin need no devices of the class.
func TestDevicePluginsComeFirst(t *testing.T) {
	withGPUs(t, func(g *gpus) {
		g.backs()
		n := node("z", "40", "8Gi")
		n.Status.Allocatable[extendedGPU] = resource.MustParse("1")
		addNode(g.t, g.api, n)
		g.asks("p", extendedGPU, "1")
		g.on("p", "z", "")
		if got := g.extended("p"); got != "none" {
			g.t.Errorf("p has %s", got)
		}
		g.asks("q", extendedGPU, "1")
		g.on("q", "", "1 Insufficient example.com/gpu, 2 cannot allocate all claims.")
		g.slice("a", "gpu-0")
		g.on("q", "a", "")
	})
}

// failing fails the first binding after the claims have been written.
type failing struct{ failed bool }

func (*failing) Name() string { return "Failing" }

func (f *failing) PreBind(context.Context, *snapshot.Pod, string) error {
	if f.failed {
		return nil
	}
	f.failed = true
	return errors.New("it fails")
}

// An attempt that fails leaves a claim behind, as does a scheduler that ends.
func TestLeftClaimsAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGPUs(t)
		g.backs()
		g.slice("b", "gpu-0")
		stop := run(t, scheduler.Config{Client: g.api, Plugins: []framework.Weighted{{Plugin: &failing{}}}})
		defer stop()
		g.asks("p", extendedGPU, "1")
		g.on("p", "", "of an earlier attempt to be deleted")
		list, err := g.claims.List(g.t.Context(), metav1.ListOptions{})
		g.must(err)
		if len(list.Items) != 1 || list.Items[0].DeletionTimestamp == nil || list.Items[0].Status.Allocation != nil {
			g.t.Fatalf("claims: %+v", list.Items)
		}
		g.drop(list.Items[0].Name)
		g.on("p", "b", "")
		if got := g.extended("p"); !strings.HasPrefix(got, "b/gpu-0 for p, ") {
			g.t.Errorf("p has %s", got)
		}
	})
}
