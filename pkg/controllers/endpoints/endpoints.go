package endpoints

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/controllers/backends"
)

// Options configure the controller.
type Options struct {
	Workers int
	Batch   time.Duration // minimum time between two writes of one object; default 20 ms
}

// Spec describes the endpoints controller.
func Spec(o Options) controller.Spec {
	return controller.Spec{Name: "endpoints-controller", Account: "endpoint-controller", Workers: o.Workers, New: o.build}
}

type reconciler struct {
	controller.Context
	*loop.Loop
	services  *informer.Informer[*corev1.Service]
	endpoints *informer.Informer[*corev1.Endpoints]
	members   func(namespace string, selector map[string]string) []*corev1.Pod
	writer    controller.Writer[*corev1.Endpoints]
}

func (o Options) build(c controller.Context) (controller.Runner, error) {
	if o.Batch <= 0 {
		o.Batch = 20 * time.Millisecond
	}
	pods := informers.For[*corev1.Pod](c.Informers)
	r := &reconciler{
		Context: c, services: informers.For[*corev1.Service](c.Informers), endpoints: informers.For[*corev1.Endpoints](c.Informers),
		members: backends.PodsBySelector(c.Informers),
	}
	r.Loop = c.NewLoop("endpoint", o.Batch, r.reconcile, r.services, pods, r.endpoints)
	r.writer = controller.NewWriter(c, r.Loop, r.endpoints)
	loop.WakeOn(r.Loop, r.services, loop.Self)
	loop.WakeOn(r.Loop, r.endpoints, loop.Self)
	backends.WakeServices(r.Loop, pods, backends.ServicesByPod(c.Informers))
	return r, nil
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	have, exists := r.endpoints.Get(key.Namespace, key.Name)
	s, ok := r.services.Get(key.Namespace, key.Name)
	switch {
	case !ok && exists && have.Labels[managedBy] == manager:
		_, err := r.writer.Delete(ctx, key, have, metav1.DeleteOptions{})
		return loop.Done, err
	case !ok || !backends.Managed(s):
		return loop.Done, nil
	}
	want, change := decide(s, r.members(s.Namespace, s.Spec.Selector), have)
	if !change {
		return loop.Done, nil
	}
	return loop.Done, r.write(ctx, key, want, exists)
}

func (r *reconciler) write(ctx context.Context, key loop.Key, want *corev1.Endpoints, exists bool) (err error) {
	reason, what := "FailedToCreateEndpoint", "Failed to create endpoint for service"
	if exists {
		reason, what = "FailedToUpdateEndpoint", "Failed to update endpoint"
		_, err = r.writer.Update(ctx, key, want)
	} else {
		_, err = r.writer.Create(ctx, key, want)
	}
	if err == nil || controller.NamespaceTerminating(err) {
		return nil
	}
	if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		r.Events.Eventf(want, corev1.EventTypeWarning, reason, "%s %s: %v", what, key, err)
	}
	return fmt.Errorf("write endpoints: %w", err)
}
