package claimstatus_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/claimstatus"
	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
)

// claim returns a claim with devices on node a, and entries "driver/device" or
// "driver/device/data".
func claim(entries ...string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
	c.Status.Allocation = &resourcev1.AllocationResult{NodeSelector: on("a")}
	for _, e := range entries {
		part := strings.Split(e, "/")
		d := resourcev1.AllocatedDeviceStatus{Driver: part[0], Pool: "p", Device: part[1]}
		if len(part) > 2 {
			d.Data = &runtime.RawExtension{Raw: []byte(part[2])}
		}
		c.Status.Devices = append(c.Status.Devices, d)
	}
	return c
}

func on(nodes ...string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: nodes}},
	}}}
}

func with(c *resourcev1.ResourceClaim, change func(*resourcev1.ResourceClaimStatus)) *resourcev1.ResourceClaim {
	c = c.DeepCopy()
	change(&c.Status)
	return c
}

// driver is a service account whose token is for a pod on the node.
func driver(node string) *request.User {
	return &request.User{Name: "system:serviceaccount:ns:driver", Extra: map[string][]string{"authentication.kubernetes.io/node-name": {node}}}
}

func TestWhoMayWriteAStatus(t *testing.T) {
	ann := &request.User{Name: "ann"}
	spread := func(s *resourcev1.ResourceClaimStatus) { s.Allocation.NodeSelector = on("a", "b") }
	reserved := func(s *resourcev1.ResourceClaimStatus) {
		s.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "u"}}
	}
	cleared := func(s *resourcev1.ResourceClaimStatus) { *s = resourcev1.ResourceClaimStatus{} }
	const binding = `status: Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="update" permission: ` +
		`resourceclaims.resource.k8s.io is forbidden: User "ann" cannot update resource "resourceclaims/binding" in API group "resource.k8s.io" at the cluster scope`
	const arbitrary = `status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:update]" permission: ` +
		`resourceclaims.resource.k8s.io "gpu" is forbidden: User "ann" cannot arbitrary-node:update resource "resourceclaims/driver" in API group "resource.k8s.io" in the namespace "ns"`
	const associated = `verb="[associated-node:update arbitrary-node:update]" permission: resourceclaims.resource.k8s.io "gpu" is forbidden: ` +
		`User "system:serviceaccount:ns:driver" cannot associated-node:update resource "resourceclaims/driver"`
	for name, row := range map[string]struct {
		user      *request.User
		may       []string // "VERB PART NAMESPACE/NAME"
		old, next *resourcev1.ResourceClaim
		patch     bool
		want      string // "": allowed
	}{
		"nothing changes":                 {user: ann, old: claim("gpu/0"), next: claim("gpu/0")},
		"allocate":                        {user: ann, old: with(claim(), cleared), next: claim(), want: binding},
		"allocate, allowed":               {user: ann, may: []string{"update binding /"}, old: with(claim(), cleared), next: claim()},
		"reserve":                         {user: ann, old: claim(), next: with(claim(), reserved), want: binding},
		"reserve by a patch":              {user: ann, may: []string{"update binding /"}, old: claim(), next: with(claim(), reserved), patch: true, want: `verb="patch"`},
		"deallocate":                      {user: ann, old: claim("gpu/0"), next: with(claim(), cleared), want: binding},
		"deallocate, allowed":             {user: ann, may: []string{"update binding /"}, old: claim("gpu/0"), next: with(claim(), cleared)},
		"a driver allocates":              {user: driver("a"), may: []string{"associated-node:update driver ns/gpu"}, old: with(claim(), cleared), next: claim("gpu/0"), want: "changing status.allocation"},
		"add an entry":                    {user: ann, may: []string{"update binding /"}, old: claim(), next: claim("gpu/0"), want: arbitrary},
		"change an entry":                 {user: ann, old: claim("gpu/0", "nic/0"), next: claim("gpu/0/{}", "nic/0"), want: arbitrary},
		"remove an entry":                 {user: ann, old: claim("gpu/0"), next: claim(), want: arbitrary},
		"add an entry, allowed":           {user: ann, may: []string{"arbitrary-node:update driver ns/gpu"}, old: claim("nic/0"), next: claim("nic/0", "gpu/0")},
		"of one driver of two":            {user: ann, may: []string{"arbitrary-node:update driver ns/nic"}, old: claim(), next: claim("gpu/0", "nic/0"), want: arbitrary},
		"patch an entry":                  {user: ann, may: []string{"arbitrary-node:patch driver ns/gpu"}, old: claim(), next: claim("gpu/0"), patch: true},
		"on its node":                     {user: driver("a"), may: []string{"associated-node:update driver ns/gpu"}, old: claim(), next: claim("gpu/0")},
		"on its node, of any":             {user: driver("a"), may: []string{"arbitrary-node:update driver ns/gpu"}, old: claim(), next: claim("gpu/0")},
		"on its node, of another":         {user: driver("a"), may: []string{"associated-node:update driver ns/nic"}, old: claim(), next: claim("gpu/0"), want: associated},
		"on another node":                 {user: driver("b"), may: []string{"associated-node:update driver ns/gpu"}, old: claim(), next: claim("gpu/0"), want: `verb="[arbitrary-node:update]"`},
		"on one of its nodes":             {user: driver("a"), may: []string{"associated-node:update driver ns/gpu"}, old: with(claim(), spread), next: with(claim("gpu/0"), spread), want: `verb="[arbitrary-node:update]"`},
		"no service account, on its node": {user: &request.User{Name: "ann", Extra: driver("a").Extra}, may: []string{"associated-node:update driver ns/gpu"}, old: claim(), next: claim("gpu/0"), want: arbitrary},
		"the server itself":               {old: claim(), next: claim("gpu/0")},
	} {
		t.Run(name, func(t *testing.T) {
			may := authz.Func(func(_ context.Context, _ *request.User, i *request.Info) (authz.Decision, string) {
				if slices.Contains(row.may, i.Verb+" "+i.Subresource+" "+i.Namespace+"/"+i.Name) {
					return authz.Allow, ""
				}
				return authz.NoOpinion, ""
			})
			a := &admission.Attributes{
				Operation: admission.Update, Resource: resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), Subresource: "status",
				Kind: resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"), Namespace: "ns", Name: "c", Object: row.next, Old: row.old, User: row.user, Options: &metav1.UpdateOptions{},
			}
			if row.patch {
				a.Options = &metav1.PatchOptions{}
			}
			err := admission.Chain{claimstatus.New(admission.Host{Authorizer: may})}.Admit(t.Context(), a, nil)
			if row.want == "" && err != nil || row.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), row.want)) {
				t.Errorf("%v\nwant %q", err, row.want)
			}
		})
	}
}
