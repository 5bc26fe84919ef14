package controllers_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

func gpuTemplate(name string) *resourcev1.ResourceClaimTemplate {
	return &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceClaimTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"tier": "gpu"}},
			Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
				Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu"},
			}}}},
		},
	}
}

// gpuPod returns a pod with a claim of a template, which runs on no node: a gate keeps the
// simulated scheduler from it.
func gpuPod(name, template string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: deploymentOf("x", 1, "v1").Spec.Template.Spec}
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "test/gate"}}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	return pod
}

func (c *cluster) resourceClaim(name string) *resourcev1.ResourceClaim {
	claim, err := client.For[*resourcev1.ResourceClaim](c.Client).In("default").Get(context.Background(), name)
	if err != nil {
		return nil
	}
	return claim
}

// claimNamed returns the claim that the pod's status names; nil if it does not exist.
func (c *cluster) claimNamed(pod string) *resourcev1.ResourceClaim {
	p, err := client.For[*corev1.Pod](c.Client).In("default").Get(context.Background(), pod)
	if err != nil || len(p.Status.ResourceClaimStatuses) != 1 {
		return nil
	}
	claim := c.resourceClaim(*p.Status.ResourceClaimStatuses[0].ResourceClaimName)
	if claim == nil || !metav1.IsControlledBy(claim, p) {
		return nil
	}
	return claim
}

// allocate does what the scheduler does for a pod. It reports whether it succeeded.
func (c *cluster) allocate(claim *resourcev1.ResourceClaim, pod *corev1.Pod) bool {
	claims := client.For[*resourcev1.ResourceClaim](c.Client)
	if !slices.Contains(claim.Finalizers, resourcev1.Finalizer) {
		claim.Finalizers = append(claim.Finalizers, resourcev1.Finalizer)
		var err error
		if claim, err = claims.Update(context.Background(), claim); err != nil {
			return false
		}
	}
	if claim.Status.Allocation == nil {
		claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "gpu", Driver: "gpu.example.com", Pool: "node-0", Device: "gpu-0"},
		}}}
	}
	claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
	_, err := claims.UpdateStatus(context.Background(), claim)
	return err == nil
}

func TestTemplatesBecomeClaims(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		pod := create(c, gpuPod("web", "gpus"))
		c.until(time.Minute, "the missing template is reported", func() bool {
			return slices.ContainsFunc(all[*corev1.Event](c, ""), func(e *corev1.Event) bool {
				return e.Reason == "FailedResourceClaimCreation" && e.InvolvedObject.Name == "web" && e.Message == `PodResourceClaim gpu: resource claim template "gpus": not found`
			})
		})
		create(c, gpuTemplate("gpus"))
		c.until(time.Minute, "the claim exists", func() bool { return c.claimNamed("web") != nil })
		claim := c.claimNamed("web")
		if !strings.HasPrefix(claim.Name, "web-gpu-") || claim.Labels["tier"] != "gpu" || claim.Annotations[resourcev1.PodResourceClaimAnnotation] != "gpu" {
			t.Errorf("the claim: %+v", claim.ObjectMeta)
		}
		remove[*resourcev1.ResourceClaim](c, claim.Name, metav1.DeletePropagationBackground)
		c.until(time.Minute, "a claim that was deleted is made again", func() bool { return c.claimNamed("web") != nil })
		if !c.allocate(c.claimNamed("web"), pod) {
			t.Fatal("the claim was not allocated")
		}
		c.quiet()
		name := c.claimNamed("web").Name
		remove[*corev1.Pod](c, "web", metav1.DeletePropagationBackground)
		c.until(time.Minute, "the claim is gone with the pod", func() bool { return c.resourceClaim(name) == nil })
	})
}

func TestClaimsAreFreedByTheirLastConsumer(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		create(c, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "shared"}, Spec: gpuTemplate("").Spec.Spec})
		for _, name := range []string{"a", "b"} {
			pod := gpuPod(name, "")
			pod.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: new("shared")}
			if pod = create(c, pod); !c.allocate(c.resourceClaim("shared"), pod) {
				t.Fatal("the claim was not allocated")
			}
		}
		remove[*corev1.Pod](c, "a", metav1.DeletePropagationBackground)
		c.until(time.Minute, "one reservation is left", func() bool { return len(c.resourceClaim("shared").Status.ReservedFor) == 1 })
		if c.resourceClaim("shared").Status.Allocation == nil {
			t.Error("a claim that is in use was deallocated")
		}
		remove[*resourcev1.ResourceClaim](c, "shared", metav1.DeletePropagationBackground)
		c.quiet()
		if c.resourceClaim("shared") == nil {
			t.Fatal("a claim that is in use was deleted")
		}
		remove[*corev1.Pod](c, "b", metav1.DeletePropagationBackground)
		c.until(time.Minute, "the claim is deleted", func() bool { return c.resourceClaim("shared") == nil })
	})
}

// Pods with claims come and go, partly under the same names, and get devices, while the
// controllers crash. In the end exactly the pods that exist have claims, each one of its own.
func TestResourceClaimsSurviveCrashes(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		inCluster(t, 2, func(t *testing.T, c *cluster) { claimStory(t, c, seed) })
	})
}

func claimStory(t *testing.T, c *cluster, seed uint64) {
	c.until(time.Minute, "pods can be created", func() bool { return exists[*corev1.ServiceAccount](c, "default", "default") })
	create(c, gpuTemplate("gpus"))
	stop := c.disturb(seed)
	random := rand.New(rand.NewPCG(seed, 2))
	for range 60 {
		name := fmt.Sprintf("p%d", random.IntN(8))
		pod, err := client.For[*corev1.Pod](c.Client).In("default").Get(context.Background(), name)
		switch claim := c.claimNamed(name); {
		case apierrors.IsNotFound(err):
			create(c, gpuPod(name, "gpus"))
		case claim != nil && claim.Status.Allocation == nil && random.IntN(2) == 0:
			c.allocate(claim, pod)
		default:
			remove[*corev1.Pod](c, name, metav1.DeletePropagationBackground)
		}
		time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
	}
	time.Sleep(5 * time.Minute)
	stop()
	time.Sleep(20 * time.Minute)
	c.quiet()
	var want, got []string
	for _, p := range c.pods("") {
		want = append(want, *p.Status.ResourceClaimStatuses[0].ResourceClaimName+" of "+string(p.UID))
	}
	for _, claim := range all[*resourcev1.ResourceClaim](c, "") {
		got = append(got, claim.Name+" of "+string(metav1.GetControllerOf(claim).UID))
	}
	slices.Sort(got)
	slices.Sort(want)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("seed %d: claims\n%s\nwant\n%s", seed, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
