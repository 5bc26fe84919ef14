package dra

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
)

func TestContainersGetTheDevicesOfTheirRequests(t *testing.T) {
	for _, version := range []string{drapb.DRAPluginService, drav1beta1.DRAPluginService} {
		t.Run(version, func(t *testing.T) {
			w := newWorld(t)
			cards, cables := w.driver(gpu, version), w.driver(nic, version)
			w.claim("one", []string{"big " + gpu, "alt/small " + gpu, "port " + nic}, "a")
			w.claim("two", []string{"card " + gpu}, "a")
			p := pod("a", "one", "two")
			if _, err := w.m.Devices(p, &p.Spec.Containers[0]); err == nil || w.m.Prepared(p) {
				t.Error("devices of claims that are not prepared")
			}
			must(t, w.m.Prepare(t.Context(), p))
			if diff := cmp.Diff([]string{"prepare one,two"}, cards.took()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{"prepare one"}, cables.took()); diff != "" {
				t.Error(diff)
			}
			for request, want := range map[string][]string{
				"":     {gpu + "/one=alt_small", gpu + "/one=big", nic + "/one=port"},
				"big":  {gpu + "/one=big"},
				"alt":  {gpu + "/one=alt_small"},
				"port": {nic + "/one=port"},
				"none": nil,
			} {
				p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "one", Request: request}}
				got := w.devices(p)
				slices.Sort(got)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("request %q: %s", request, diff)
				}
			}
			if got := w.m.DynamicResources(p, &corev1.Container{Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "two"}}}}); len(got) != 1 ||
				got[0].ClaimName != "two" || got[0].ClaimResources[0].DriverName != gpu || got[0].ClaimResources[0].DeviceName != "dev-0" || got[0].ClaimResources[0].CdiDevices[0].Name != gpu+"/two=card" {
				t.Errorf("pod resources: %v", got)
			}
			must(t, w.m.Unprepare(t.Context(), "a"))
			w.idle(cards, cables)
		})
	}
}

func TestClaimsAreFoundByTheirEntries(t *testing.T) {
	w := newWorld(t)
	d := w.driver(gpu)
	generated := w.claim("pod-a-card-x", []string{"card " + gpu}, "a")
	generated.OwnerReferences = []metav1.OwnerReference{{UID: "a", Controller: new(true)}}
	extended := w.claim("extended", []string{"container-0 " + gpu}, "a")
	extended.OwnerReferences = generated.OwnerReferences
	p := pod("a")
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "card", ResourceClaimTemplateName: new("t")}, {Name: "none", ResourceClaimTemplateName: new("t")}}
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "card"}, {Name: "none"}}
	wantErr(t, w.m.Prepare(t.Context(), p), "pod claim card: ResourceClaim not created yet")
	p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "none"}, {Name: "card", ResourceClaimName: new("pod-a-card-x")}}
	p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "extended", RequestMappings: []corev1.ContainerExtendedResourceRequest{{ContainerName: "app", ResourceName: "example.com/gpu", RequestName: "container-0"}},
	}
	must(t, w.m.Prepare(t.Context(), p))
	if diff := cmp.Diff([]string{gpu + "/pod-a-card-x=card", gpu + "/extended=container-0"}, w.devices(p)); diff != "" {
		t.Error(diff)
	}
	must(t, w.m.Unprepare(t.Context(), "a"))
	w.idle(d)
}

func TestPodsUseOnlyTheirClaims(t *testing.T) {
	w := newWorld(t)
	d := w.driver(gpu)
	w.claim("foreign", []string{"card " + gpu}, "b")
	w.claim("waiting", nil).Status.Allocation = nil
	w.claim("group", []string{"card " + gpu}, "a").Status.ReservedFor[0].APIGroup = "scheduling.k8s.io"
	template := pod("a")
	template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "card", ResourceClaimTemplateName: new("t")}}
	template.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "card", ResourceClaimName: new("stolen")}}
	w.claim("stolen", []string{"card " + gpu}, "a")
	w.claim("away", []string{"card away.example.com", "card " + gpu}, "a")
	for _, row := range []struct {
		pod  *corev1.Pod
		want string
	}{
		{pod("a", "foreign"), "pod pod-a(a) is not allowed to use ResourceClaim foreign(uid-foreign)"},
		{pod("a", "group"), "is not allowed to use"},
		{pod("a", "waiting"), "ResourceClaim waiting is not allocated"},
		{pod("a", "gone"), `fetch ResourceClaim gone: resourceclaims.resource.k8s.io "gone" not found`},
		{template, "ResourceClaim stolen was not created for pod pod-a (pod is not owner)"},
		{pod("a", "away"), "DRA driver away.example.com is not registered"},
	} {
		wantErr(t, w.m.Prepare(t.Context(), row.pod), row.want)
	}
	if calls := d.took(); calls != nil || len(w.m.Pods()) > 0 {
		t.Errorf("calls %q, pods %v", calls, w.m.Pods())
	}
	must(t, w.m.Unprepare(t.Context(), "a"))
}

func TestSharedClaimIsPreparedOnce(t *testing.T) {
	w := newWorld(t)
	d := w.driver(gpu)
	w.claim("shared", []string{"card " + gpu}, "a", "b", "c")
	var all sync.WaitGroup
	for _, uid := range []string{"a", "b", "c"} {
		all.Go(func() {
			if err := w.m.Prepare(t.Context(), pod(uid, "shared")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	must(t, w.m.Unprepare(t.Context(), "a"))
	must(t, w.m.Unprepare(t.Context(), "b"))
	if diff := cmp.Diff([]string{"prepare shared"}, d.took()); diff != "" {
		t.Error(diff)
	}
	if _, err := w.m.Devices(pod("a", "shared"), &pod("a", "shared").Spec.Containers[0]); err == nil {
		t.Error("a pod that has released the claim has its devices")
	}
	must(t, w.m.Unprepare(t.Context(), "c"))
	must(t, w.m.Unprepare(t.Context(), "c"))
	if diff := cmp.Diff([]string{"unprepare shared"}, d.took()); diff != "" {
		t.Error(diff)
	}
	w.idle(d)
}

// A pod that was deleted by force may still run when its claim is allocated again.
func TestClaimInUseIsNotPreparedForAnotherAllocation(t *testing.T) {
	w := newWorld(t)
	d := w.driver(gpu)
	w.claim("card", []string{"card " + gpu}, "a")
	must(t, w.m.Prepare(t.Context(), pod("a", "card")))
	w.claim("card", []string{"other " + gpu}, "b")
	wantErr(t, w.m.Prepare(t.Context(), pod("b", "card")), "is still prepared with other devices")
	w.claim("card", []string{"card " + gpu}, "b").UID = "new"
	wantErr(t, w.m.Prepare(t.Context(), pod("b", "card")), "old ResourceClaim with same name card and different UID uid-card still exists")
	must(t, w.m.Unprepare(t.Context(), "a"))
	must(t, w.m.Prepare(t.Context(), pod("b", "card")))
	must(t, w.m.Unprepare(t.Context(), "b"))
	w.idle(d)
}

func TestCDINames(t *testing.T) {
	for id, want := range map[string]bool{
		"vendor.com/gpu=0": true, "vendor.com/gpu=all": true, "v/c=a:b.c-d_e": true, "V.com/net-class_1=x": true,
		"": false, "=": false, "/=": false, "vendor.com/gpu": false, "vendor.com/gpu=": false, "/gpu=0": false, "vendor.com/=0": false,
		"0vendor/gpu=0": false, "vendor-/gpu=0": false, "vendor/gpu.x=0": false, "vendor/gpu=a/b": false, "vendor/gpu=a=b": false, "vendor/gpu= 0": false,
		"vendor/gpu=" + strings.Repeat("0", 1000): false,
	} {
		if got := validID(id); got != want {
			t.Errorf("%q: %v", id, got)
		}
	}
}
