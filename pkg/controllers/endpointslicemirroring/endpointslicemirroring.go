package endpointslicemirroring

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
)

// batch is the least time between two writes for one service.
const batch = 20 * time.Millisecond

// Controller is the endpointslicemirroring controller.
type Controller struct {
	kit.Kit
	slices client.Resource[*discoveryv1.EndpointSlice]
	loop   *loop.Loop
}

// New builds the controller and says what wakes it; the views must not run yet.
func New(k kit.Kit) *Controller {
	c := &Controller{Kit: k, slices: client.For[*discoveryv1.EndpointSlice](k.Client)}
	v := k.Views
	c.loop = k.Loop("endpoint_slice_mirroring", batch, c.reconcile, v.Services, v.Endpoints, v.EndpointSlices)
	loop.WakeOn(c.loop, v.Services, loop.Self)
	loop.WakeOn(c.loop, v.Endpoints, loop.Self)
	loop.WakeOn(c.loop, v.EndpointSlices, serviceOf)
	return c
}

// Run keeps the slices until ctx ends.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

// serviceOf names the service of a slice that is ours: its Endpoints have the
// same name.
func serviceOf(es *discoveryv1.EndpointSlice) []loop.Key {
	if es.Labels[discoveryv1.LabelManagedBy] != ManagedBy {
		return nil
	}
	return []loop.Key{{Namespace: es.Namespace, Name: es.Labels[discoveryv1.LabelServiceName]}}
}

func (c *Controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	ours := c.ours(key)
	e, there := c.Views.Endpoints.Get(key.Namespace, key.Name)
	s, served := c.Views.Services.Get(key.Namespace, key.Name)
	if !there || !served || !wanted(s, e) {
		return loop.Done, c.apply(ctx, key, plan{Delete: ours})
	}
	todo, missing := decide(e, ours)
	c.tell(e, missing)
	err := c.apply(ctx, key, todo)
	if err != nil && !apierrors.IsConflict(err) {
		c.Events.Eventf(e, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices", "Error updating Endpoint Slices of Endpoints %s: %v", key, err)
	}
	return loop.Done, err
}

// ours are the slices that this controller made for a service of that name.
func (c *Controller) ours(key loop.Key) (out []*discoveryv1.EndpointSlice) {
	for _, es := range c.Views.SlicesOf(key.Namespace, key.Name) {
		if es.Labels[discoveryv1.LabelManagedBy] == ManagedBy && es.DeletionTimestamp == nil {
			out = append(out, es)
		}
	}
	return out
}

// tell says what is not mirrored.
func (c *Controller) tell(e *corev1.Endpoints, missing left) {
	if missing.tooMany > 0 {
		c.Events.Eventf(e, corev1.EventTypeWarning, "TooManyAddressesToMirror",
			"A max of %d addresses can be mirrored to EndpointSlices per Endpoints subset. %d addresses were skipped", capacity, missing.tooMany)
	}
	if missing.invalid > 0 {
		c.Events.Eventf(e, corev1.EventTypeWarning, "InvalidIPAddress", "Skipped %d invalid IP addresses when mirroring to EndpointSlices", missing.invalid)
	}
}

func (c *Controller) apply(ctx context.Context, key loop.Key, todo plan) error {
	var errs []error
	for _, es := range todo.Create {
		got, err := c.slices.In(es.Namespace).Create(ctx, es)
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("create slice: %w", err))
			continue
		}
		c.wrote(key, got)
	}
	for _, es := range todo.Update {
		got, err := c.slices.In(es.Namespace).Update(ctx, es)
		if err != nil {
			errs = append(errs, fmt.Errorf("update slice %s: %w", es.Name, err))
			continue
		}
		c.wrote(key, got)
	}
	if err := errors.Join(errs...); err != nil {
		return err // what is to go may still be needed
	}
	for _, es := range todo.Delete {
		if err := c.delete(ctx, key, es); err != nil {
			return err
		}
	}
	return nil
}

func (c *Controller) delete(ctx context.Context, key loop.Key, es *discoveryv1.EndpointSlice) error {
	err := c.slices.In(es.Namespace).Delete(ctx, es.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(es.UID))})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete slice %s: %w", es.Name, err)
	}
	c.loop.Wait(key, func() bool {
		now, ok := c.Views.EndpointSlices.Get(es.Namespace, es.Name)
		return !ok || now.UID != es.UID || now.DeletionTimestamp != nil
	})
	return nil
}

func (c *Controller) wrote(key loop.Key, es *discoveryv1.EndpointSlice) {
	c.loop.Wrote(key, c.Views.EndpointSlices, es.ResourceVersion)
}
