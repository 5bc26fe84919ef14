package endpointslicemirroring

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/controllers/backends"
)

// batch is the minimum time between two writes for one service.
const batch = 20 * time.Millisecond

// Spec describes the endpointslice mirroring controller.
func Spec(workers int) controller.Spec {
	return controller.Spec{
		Name: "endpointslice-mirroring-controller", Account: "endpointslicemirroring-controller",
		Component: "endpoint-slice-mirroring-controller", Workers: workers, New: build,
	}
}

type reconciler struct {
	controller.Context
	*loop.Loop
	services  *informer.Informer[*corev1.Service]
	endpoints *informer.Informer[*corev1.Endpoints]
	slices    backends.Slices // an Endpoints object has the name of its Service
}

func build(c controller.Context) (controller.Runner, error) {
	slices := informers.For[*discoveryv1.EndpointSlice](c.Informers)
	r := &reconciler{Context: c, services: informers.For[*corev1.Service](c.Informers), endpoints: informers.For[*corev1.Endpoints](c.Informers)}
	r.Loop = c.NewLoop("endpoint_slice_mirroring", batch, r.reconcile, r.services, r.endpoints, slices)
	r.slices = backends.NewSlices(controller.NewWriter(c, r.Loop, slices), ManagedBy, informers.SlicesByService(c.Informers))
	loop.WakeOn(r.Loop, r.services, loop.Self)
	loop.WakeOn(r.Loop, r.endpoints, loop.Self)
	loop.WakeOn(r.Loop, slices, r.slices.Service)
	return r, nil
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	have := r.slices.Of(key)
	e, exists := r.endpoints.Get(key.Namespace, key.Name)
	s, served := r.services.Get(key.Namespace, key.Name)
	if !exists || !served || !wanted(s, e) {
		return loop.Done, r.slices.Apply(ctx, key, backends.Plan{Delete: have}, r.slices.Create)
	}
	todo, left := decide(e, have)
	r.report(e, left)
	err := r.slices.Apply(ctx, key, todo, r.slices.Create)
	if err != nil && !apierrors.IsConflict(err) {
		r.Events.Eventf(e, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices", "Error updating Endpoint Slices of Endpoints %s: %v", key, err)
	}
	return loop.Done, err
}

// report records events about addresses that are not mirrored.
func (r *reconciler) report(e *corev1.Endpoints, s skipped) {
	if s.tooMany > 0 {
		r.Events.Eventf(e, corev1.EventTypeWarning, "TooManyAddressesToMirror",
			"A max of %d addresses can be mirrored to EndpointSlices per Endpoints subset. %d addresses were skipped", capacity, s.tooMany)
	}
	if s.invalid > 0 {
		r.Events.Eventf(e, corev1.EventTypeWarning, "InvalidIPAddress", "Skipped %d invalid IP addresses when mirroring to EndpointSlices", s.invalid)
	}
}
