package plan

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/controller/ownership"
	"podium/pkg/resourceclaim"
	"podium/pkg/scheduler/plugins/dynamicresources"
	"podium/pkg/scheduler/snapshot"
)

// claims are the ResourceClaims of a simulation. They change as the controllers and the
// scheduler would change them.
type claims struct {
	devices   *dynamicresources.Plugin
	templates map[types.NamespacedName]*resourcev1.ResourceClaimTemplate
	now       map[types.NamespacedName]*resourcev1.ResourceClaim
}

func newClaims(node func(name string) *corev1.Node) *claims {
	c := &claims{templates: map[types.NamespacedName]*resourcev1.ResourceClaimTemplate{}, now: map[types.NamespacedName]*resourcev1.ResourceClaim{}}
	c.devices = dynamicresources.New(c, node)
	return c
}

// learn adds the claims and devices of a cluster.
func (c *claims) learn(all *Cluster) {
	for _, o := range all.DeviceClaims {
		c.set(o)
	}
	for _, o := range all.ClaimTemplates {
		c.templates[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = o
	}
	report(all.DeviceClasses, c.devices.OnClass)
	report(all.Slices, c.devices.OnSlice)
	report(all.TaintRules, c.devices.OnTaintRule)
}

func (c *claims) set(claim *resourcev1.ResourceClaim) {
	key := types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
	c.devices.OnClaim(c.now[key], claim)
	c.now[key] = claim
}

// Update implements the writer of the plugin.
func (c *claims) Update(_ context.Context, claim *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	next := claim.DeepCopy()
	version, _ := strconv.ParseUint(claim.ResourceVersion, 10, 64)
	next.ResourceVersion = strconv.FormatUint(version+1, 10)
	c.now[types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}] = next
	return next, nil
}

// UpdateStatus implements the writer of the plugin.
func (c *claims) UpdateStatus(ctx context.Context, claim *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	return c.Update(ctx, claim)
}

// Create implements the writer of the plugin.
func (c *claims) Create(_ context.Context, claim *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	return claim, nil
}

// Delete implements the writer of the plugin.
func (c *claims) Delete(_ context.Context, claim *resourcev1.ResourceClaim) error {
	c.devices.OnClaim(claim, nil)
	delete(c.now, types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name})
	return nil
}

// SetExtendedClaimStatus implements the writer of the plugin.
func (c *claims) SetExtendedClaimStatus(context.Context, *corev1.Pod, *corev1.PodExtendedResourceClaimStatus) error {
	return nil
}

// made returns the pod with the names of the claims that are made of its templates. An entry
// without a template stays without a claim.
func (c *claims) made(p *corev1.Pod) *corev1.Pod {
	out := p
	for i := range p.Spec.ResourceClaims {
		entry := &p.Spec.ResourceClaims[i]
		if _, known := resourceclaim.Name(p, entry); known || entry.ResourceClaimTemplateName == nil {
			continue
		}
		template := c.templates[types.NamespacedName{Namespace: p.Namespace, Name: *entry.ResourceClaimTemplateName}]
		if template == nil {
			continue
		}
		if out == p {
			out = p.DeepCopy()
		}
		name := fmt.Sprintf("%s %s", p.UID, entry.Name) // no claim of the cluster has such a name
		c.set(&resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: p.Namespace, Name: name, UID: types.UID(name),
				OwnerReferences: []metav1.OwnerReference{ownership.Reference(p, corev1.SchemeGroupVersion.WithKind("Pod"))},
			},
			Spec: template.Spec.Spec,
		})
		out.Status.ResourceClaimStatuses = append(out.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: entry.Name, ResourceClaimName: &name})
	}
	return out
}

// MayUseDevices reports whether a pod has claims, or asks for extended resources, for which devices may
// stand.
func MayUseDevices(p *corev1.Pod) bool {
	if len(p.Spec.ResourceClaims) > 0 {
		return true
	}
	for name := range snapshot.NewPod(p).Requests.Extended {
		if strings.Contains(string(name), "/") { // huge pages have none
			return true
		}
	}
	return false
}

// ended frees what a pod that has ended has reserved.
func (c *claims) ended(p *corev1.Pod) {
	c.devices.Unreserve(snapshot.NewPod(p), p.Spec.NodeName)
	var names []string
	for i := range p.Spec.ResourceClaims {
		name, _ := resourceclaim.Name(p, &p.Spec.ResourceClaims[i])
		names = append(names, name)
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil {
		names = append(names, s.ResourceClaimName)
	}
	for _, name := range names {
		key := types.NamespacedName{Namespace: p.Namespace, Name: name}
		claim := c.now[key]
		switch {
		case claim == nil:
		case metav1.IsControlledBy(claim, p):
			c.devices.OnClaim(claim, nil)
			delete(c.now, key)
		case resourceclaim.ReservedFor(claim, p.UID):
			next := claim.DeepCopy()
			next.Status.ReservedFor = slices.DeleteFunc(next.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == p.UID })
			if len(next.Status.ReservedFor) == 0 {
				next.Status.Allocation, next.Status.Devices = nil, nil
			}
			next, _ = c.Update(context.Background(), next)
			c.devices.OnClaim(claim, next)
		}
	}
}
