// Package servicecidr protects ServiceCIDRs that Services have addresses of: one that is
// deleted stays, and nothing is allocated from it, until no address needs it.
package servicecidr

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

const (
	finalizer = "networking.k8s.io/service-cidr-finalizer"
	allocator = "ipallocator.k8s.io" // manager of the addresses of Services

	// grace is the time in which all API servers see that a ServiceCIDR is deleted, and
	// stop to allocate from it.
	grace = 10 * time.Second
)

// Spec describes the ServiceCIDR controller.
func Spec() controller.Spec {
	return controller.Spec{Name: "service-cidr-controller", Account: "service-cidrs-controller", Workers: 5, New: build}
}

type reconciler struct {
	*loop.Loop
	cidrs     *informer.Informer[*networkingv1.ServiceCIDR]
	addresses *informer.Informer[*networkingv1.IPAddress]
	present   client.Resource[*networkingv1.IPAddress]
	writer    controller.Writer[*networkingv1.ServiceCIDR]
	now       func() time.Time
}

func build(c controller.Context) (controller.Runner, error) {
	r := &reconciler{
		cidrs: informers.For[*networkingv1.ServiceCIDR](c.Informers), addresses: informers.For[*networkingv1.IPAddress](c.Informers),
		present: client.For[*networkingv1.IPAddress](c.Client), now: time.Now,
	}
	r.Loop = c.NewLoop("servicecidrs", 0, r.reconcile, r.cidrs, r.addresses)
	r.writer = controller.NewWriter(c, r.Loop, r.cidrs)
	loop.WakeOn(r.Loop, r.cidrs, r.overlapping)
	loop.WakeOn(r.Loop, r.addresses, r.deletedAround)
	return r, nil
}

// overlapping returns the keys of a ServiceCIDR and of those that are deleted: it may take
// over their addresses.
func (r *reconciler) overlapping(changed *networkingv1.ServiceCIDR) []loop.Key {
	keys := loop.Self(changed)
	for _, c := range r.cidrs.List() {
		if c.DeletionTimestamp != nil && c.Name != changed.Name {
			keys = append(keys, loop.KeyOf(c))
		}
	}
	return keys
}

// deletedAround returns the keys of the deleted ServiceCIDRs that contain an address.
func (r *reconciler) deletedAround(a *networkingv1.IPAddress) (keys []loop.Key) {
	for _, c := range r.cidrs.List() {
		if c.DeletionTimestamp != nil && contains(c, a) {
			keys = append(keys, loop.KeyOf(c))
		}
	}
	return keys
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	c, ok := r.cidrs.Get("", key.Name)
	if !ok {
		return loop.Done, nil
	}
	if c.DeletionTimestamp != nil {
		return r.terminate(ctx, key, c)
	}
	if !slices.Contains(c.Finalizers, finalizer) {
		c := c.DeepCopy()
		c.Finalizers = append(c.Finalizers, finalizer)
		_, err := r.writer.Update(ctx, key, c)
		return loop.Done, err
	}
	return loop.Done, r.setReady(ctx, key, c, metav1.Condition{Status: metav1.ConditionTrue, Message: "Kubernetes Service CIDR is ready"})
}

// terminate removes the finalizer once no address needs the ServiceCIDR.
func (r *reconciler) terminate(ctx context.Context, key loop.Key, c *networkingv1.ServiceCIDR) (loop.Result, error) {
	if !slices.Contains(c.Finalizers, finalizer) {
		return loop.Done, nil
	}
	if needed(c, r.cidrs.List(), r.addresses.List()) {
		return loop.Done, r.setReady(ctx, key, c, metav1.Condition{
			Status: metav1.ConditionFalse, Reason: networkingv1.ServiceCIDRReasonTerminating,
			Message: "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR",
		})
	}
	if left := grace - r.now().Sub(c.DeletionTimestamp.Time); left > 0 {
		return loop.After(left), nil
	}
	// The informer may lag behind an allocation.
	present, err := r.present.List(ctx, metav1.ListOptions{})
	if err != nil {
		return loop.Done, fmt.Errorf("list IPAddresses: %w", err)
	}
	if needed(c, r.cidrs.List(), present.Items) {
		return loop.After(grace), nil
	}
	c = c.DeepCopy()
	c.Finalizers = slices.DeleteFunc(c.Finalizers, func(f string) bool { return f == finalizer })
	_, err = r.writer.Update(ctx, key, c)
	return loop.Done, err
}

// setReady writes the condition Ready if it differs.
func (r *reconciler) setReady(ctx context.Context, key loop.Key, c *networkingv1.ServiceCIDR, ready metav1.Condition) error {
	ready.Type, ready.LastTransitionTime = networkingv1.ServiceCIDRConditionReady, metav1.NewTime(r.now())
	c = c.DeepCopy()
	if !meta.SetStatusCondition(&c.Status.Conditions, ready) {
		return nil
	}
	_, err := r.writer.UpdateStatus(ctx, key, c)
	return err
}

// needed reports whether an address of a Service is in c and in no other ServiceCIDR that
// stays.
func needed(c *networkingv1.ServiceCIDR, all []*networkingv1.ServiceCIDR, addresses []*networkingv1.IPAddress) bool {
	return slices.ContainsFunc(addresses, func(a *networkingv1.IPAddress) bool {
		return a.Labels[networkingv1.LabelManagedBy] == allocator && contains(c, a) &&
			!slices.ContainsFunc(all, func(other *networkingv1.ServiceCIDR) bool {
				return other.Name != c.Name && other.DeletionTimestamp == nil && contains(other, a)
			})
	})
}

func contains(c *networkingv1.ServiceCIDR, a *networkingv1.IPAddress) bool {
	ip, err := netip.ParseAddr(a.Name)
	return err == nil && slices.ContainsFunc(c.Spec.CIDRs, func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && p.Contains(ip)
	})
}
