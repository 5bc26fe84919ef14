// Package claimstatus requires permissions for parts of the status of ResourceClaims, beyond
// the one for the subresource: allocation and reservedFor belong to schedulers, and each entry
// of devices to the driver that it names. A driver that runs on a node thus reaches only its
// own entries, in claims for that node. Upstream does this as part of the kind: the plugin
// cannot be disabled.
// https://kubernetes.io/docs/concepts/security/hardening-guide/dynamic-resource-allocation/
package claimstatus

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
)

// New returns the plugin.
func New(h admission.Host) admission.Plugin {
	return admission.Plugin{
		Name:        "DRAResourceClaimGranularStatusAuthorization",
		Operations:  []admission.Operation{admission.Update},
		Resource:    resourcev1.Resource("resourceclaims"),
		Subresource: "status",
		Validate: func(ctx context.Context, a *admission.Attributes) error {
			if a.User == nil {
				return nil
			}
			w := write{ctx: ctx, Attributes: a, may: h.Authorizer}
			old, next := a.Old.(*resourcev1.ResourceClaim), a.Object.(*resourcev1.ResourceClaim)
			if errs := append(w.binding(&old.Status, &next.Status), w.devices(&old.Status, &next.Status)...); len(errs) > 0 {
				return apierrors.NewInvalid(a.Kind.GroupKind(), next.Name, errs)
			}
			return nil
		},
	}
}

// write is one write of a status.
type write struct {
	*admission.Attributes
	ctx context.Context
	may authz.Authorizer
}

// verb returns the verb of the request.
func (w *write) verb() string {
	if _, patch := w.Options.(*metav1.PatchOptions); patch {
		return "patch"
	}
	return "update"
}

// refusal returns why the user may not do verb on a part of claims; nil: the user may.
func (w *write) refusal(verb, part, namespace, name string) error {
	info := request.Info{
		IsResource: true, Verb: verb, Group: resourcev1.GroupName, Version: w.InForms()[0].Resource.Version,
		Resource: "resourceclaims", Subresource: part, Namespace: namespace, Name: name,
	}
	d, reason := w.may.Authorize(w.ctx, w.User, &info)
	if d == authz.Allow {
		return nil
	}
	return authz.Forbidden(w.User, &info, reason)
}

// binding checks changes of allocation and reservedFor. The permission is for all namespaces.
func (w *write) binding(old, next *resourcev1.ResourceClaimStatus) field.ErrorList {
	if apiequality.Semantic.DeepEqual(old.Allocation, next.Allocation) && apiequality.Semantic.DeepEqual(old.ReservedFor, next.ReservedFor) {
		return nil
	}
	verb := w.verb()
	err := w.refusal(verb, resourcev1.SubresourceBinding, "", "")
	if err == nil {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("status"),
		fmt.Sprintf(`changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="%s" permission: %v`, verb, err))}
}

// devices checks changes of entries of devices, for each driver whose entries change. One of
// several verbs is enough. Entries that go together with the allocation need no permission of
// their own.
func (w *write) devices(old, next *resourcev1.ResourceClaimStatus) (errs field.ErrorList) {
	if next.Allocation == nil {
		return nil
	}
	verbs := []string{resourcev1.VerbPrefixArbitraryNode + w.verb()}
	if onItsNode(w.User, next.Allocation) {
		verbs = slices.Insert(verbs, 0, resourcev1.VerbPrefixAssociatedNode+w.verb())
	}
	for _, driver := range changed(old.Devices, next.Devices) {
		if err := w.driver(verbs, driver); err != nil {
			errs = append(errs, field.Forbidden(field.NewPath("status", "devices"),
				fmt.Sprintf(`changing status.devices requires resource="resourceclaims/driver", verb="%s" permission: %v`, verbs, err)))
		}
	}
	return errs
}

// driver returns nil if the user may do one of the verbs for a driver, else why the first is
// refused.
func (w *write) driver(verbs []string, driver string) (first error) {
	for _, verb := range verbs {
		err := w.refusal(verb, resourcev1.SubresourceDriver, w.Namespace, driver)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// changed returns the drivers of which entries were added, removed or changed, sorted.
func changed(old, next []resourcev1.AllocatedDeviceStatus) []string {
	type device struct{ driver, pool, name, share string }
	key := func(d *resourcev1.AllocatedDeviceStatus) device {
		k := device{driver: d.Driver, pool: d.Pool, name: d.Device}
		if d.ShareID != nil {
			k.share = *d.ShareID
		}
		return k
	}
	before := map[device]*resourcev1.AllocatedDeviceStatus{}
	for i := range old {
		before[key(&old[i])] = &old[i]
	}
	drivers := map[string]bool{}
	for i := range next {
		k := key(&next[i])
		if was := before[k]; was == nil || !apiequality.Semantic.DeepEqual(was, &next[i]) {
			drivers[k.driver] = true
		}
		delete(before, k)
	}
	for k := range before {
		drivers[k.driver] = true
	}
	return slices.Sorted(maps.Keys(drivers))
}

// nodeKey is the key under which the identity of a service account has the node for whose pod
// its token was issued.
const nodeKey = "authentication.kubernetes.io/node-name"

// onItsNode reports whether the user is a service account on the one node that the allocation
// is for.
func onItsNode(u *request.User, of *resourcev1.AllocationResult) bool {
	nodes := u.Extra[nodeKey]
	return strings.HasPrefix(u.Name, "system:serviceaccount:") && len(nodes) == 1 && nodes[0] != "" && nodes[0] == nodeOf(of)
}

// nodeOf returns the name of the node that an allocation is for, "" if it is for several.
func nodeOf(a *resourcev1.AllocationResult) string {
	if a.NodeSelector == nil || len(a.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	term := a.NodeSelector.NodeSelectorTerms[0]
	if len(term.MatchExpressions) != 0 || len(term.MatchFields) != 1 {
		return ""
	}
	f := term.MatchFields[0]
	if f.Key != metav1.ObjectNameField || f.Operator != corev1.NodeSelectorOpIn || len(f.Values) != 1 {
		return ""
	}
	return f.Values[0]
}
