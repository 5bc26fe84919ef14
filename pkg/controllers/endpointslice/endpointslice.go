package endpointslice

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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
	MaxSize int           // endpoints per slice; default 100
	Batch   time.Duration // minimum time between two writes for one service; default 20 ms
}

// Spec describes the endpointslice controller.
func Spec(o Options) controller.Spec {
	return controller.Spec{Name: "endpointslice-controller", Component: "endpoint-slice-controller", Workers: o.Workers, New: o.build}
}

type reconciler struct {
	controller.Context
	*loop.Loop
	maxSize   int
	services  *informer.Informer[*corev1.Service]
	nodes     *informer.Informer[*corev1.Node]
	members   func(namespace string, selector map[string]string) []*corev1.Pod
	podsOn    func(node string) []*corev1.Pod
	selecting func(*corev1.Pod) []*corev1.Service
	slices    backends.Slices
}

func (o Options) build(c controller.Context) (controller.Runner, error) {
	if o.MaxSize <= 0 {
		o.MaxSize = 100
	}
	if o.Batch <= 0 {
		o.Batch = 20 * time.Millisecond
	}
	pods, slices := informers.For[*corev1.Pod](c.Informers), informers.For[*discoveryv1.EndpointSlice](c.Informers)
	r := &reconciler{
		Context: c, maxSize: o.MaxSize,
		services: informers.For[*corev1.Service](c.Informers), nodes: informers.For[*corev1.Node](c.Informers),
		members: backends.PodsBySelector(c.Informers), podsOn: informers.PodsByNode(c.Informers), selecting: backends.ServicesByPod(c.Informers),
	}
	r.Loop = c.NewLoop("endpoint_slice", o.Batch, r.reconcile, r.services, pods, slices, r.nodes)
	r.slices = backends.NewSlices(controller.NewWriter(c, r.Loop, slices), ManagedBy, informers.SlicesByService(c.Informers))
	loop.WakeOn(r.Loop, r.services, loop.Self)
	loop.WakeOn(r.Loop, slices, r.slices.Service)
	backends.WakeServices(r.Loop, pods, r.selecting)
	r.nodes.OnChange(r.nodeMoved)
	return r, nil
}

// nodeMoved enqueues the services of a node's pods when its zone changes. A node that does not
// exist has none.
func (r *reconciler) nodeMoved(old, new *corev1.Node) {
	if zoneOf(old) == zoneOf(new) {
		return
	}
	node := new
	if node == nil {
		node = old
	}
	for _, p := range r.podsOn(node.Name) {
		for _, s := range r.selecting(p) {
			r.Wake(loop.KeyOf(s))
		}
	}
}

// zoneOf returns the zone of a node, "" if it has none; n may be nil.
func zoneOf(n *corev1.Node) string {
	if n == nil {
		return ""
	}
	return n.Labels[corev1.LabelTopologyZone]
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	s, ok := r.services.Get(key.Namespace, key.Name)
	if !ok || !backends.Managed(s) {
		return loop.Done, nil // the garbage collector deletes the slices of a service that is gone
	}
	// A deleted service of the same name may have slices, too.
	have := slices.DeleteFunc(r.slices.Of(key), func(es *discoveryv1.EndpointSlice) bool { return !metav1.IsControlledBy(es, s) })
	todo := decide(s, desired(s, r.members(s.Namespace, s.Spec.Selector), r.zone), have, r.maxSize)
	err := r.slices.Apply(ctx, key, todo, func(ctx context.Context, key loop.Key, es *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
		return r.create(ctx, key, s, es)
	})
	if err != nil && !apierrors.IsConflict(err) {
		r.Events.Eventf(s, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices",
			"Error updating Endpoint Slices for Service %s/%s: %v", s.Namespace, s.Name, err)
	}
	return loop.Done, err
}

func (r *reconciler) zone(node string) string {
	n, _ := r.nodes.Get("", node)
	return zoneOf(n)
}

// create creates a slice with the name that decide chose. If a slice of s that the informer
// does not show yet has the name, create succeeds; if another object has it, the server
// chooses a name.
func (r *reconciler) create(ctx context.Context, key loop.Key, s *corev1.Service, es *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	got, err := r.slices.Create(ctx, key, es)
	if !apierrors.IsAlreadyExists(err) {
		return got, err
	}
	live, err := r.slices.Get(ctx, es.Namespace, es.Name)
	if err != nil {
		return nil, fmt.Errorf("get existing slice %s: %w", es.Name, err)
	}
	if metav1.IsControlledBy(live, s) && live.Labels[discoveryv1.LabelManagedBy] == ManagedBy {
		r.slices.Wrote(key, live)
		return live, nil
	}
	es.Name = ""
	return r.slices.Create(ctx, key, es)
}
