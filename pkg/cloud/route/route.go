package route

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client/informer"
	"podium/pkg/cloud"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

const (
	timeout = time.Minute            // of one reconcile
	pace    = 200 * time.Millisecond // minimum time between two reconciles
)

// all is the only key: all routes are reconciled together.
var all = loop.Key{Name: "routes"}

// Options configure the controller.
type Options struct {
	Routes       cloud.Routes   // nil disables the controller
	ClusterCIDRs []netip.Prefix // the pods' addresses
	Period       time.Duration  // between two checks of all routes
}

// Spec describes the route controller.
func Spec(o Options) controller.Spec {
	s := controller.Spec{Name: "node-route-controller", Account: "route-controller", Component: "route_controller", Workers: 1}
	if o.Routes != nil {
		s.New = o.build
	}
	return s
}

type reconciler struct {
	controller.Context
	Options
	*loop.Loop
	nodes  *informer.Informer[*corev1.Node]
	writer controller.Writer[*corev1.Node]
}

func (o Options) build(c controller.Context) (controller.Runner, error) {
	r := &reconciler{Context: c, Options: o, nodes: informers.For[*corev1.Node](c.Informers)}
	r.Loop = c.NewLoop("route_controller", pace, r.reconcile, r.nodes)
	r.writer = controller.NewWriter(c, r.Loop, r.nodes)
	r.nodes.OnChange(func(old, new *corev1.Node) {
		if !sameRoutes(old, new) {
			r.Wake(all)
		}
	})
	r.Wake(all) // there may be routes of nodes that no longer exist
	return r, nil
}

func (r *reconciler) reconcile(ctx context.Context, _ loop.Key) (loop.Result, error) {
	ask, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	have, err := r.Routes.List(ask)
	if err != nil {
		return loop.Done, fmt.Errorf("list the provider's routes: %w", err)
	}
	nodes := r.nodes.List()
	p := decide(nodes, have, r.ClusterCIDRs)
	errs := []error{r.apply(ask, &p, nodes)}
	for _, n := range nodes {
		if missing, ours := p.missing[n.Name]; ours {
			errs = append(errs, r.setCondition(ctx, n, missing > 0))
		}
	}
	return loop.After(r.Period), errors.Join(errs...)
}

// apply deletes and then creates routes, and updates what the nodes lack. A node with an
// incomplete route that cannot be completed does not lack the route.
func (r *reconciler) apply(ctx context.Context, p *plan, nodes []*corev1.Node) error {
	var errs []error
	for _, x := range p.remove {
		r.Log.Info("route deleted", "pods", x.Destination, "node", x.Node)
		if err := r.Routes.Delete(ctx, x); err != nil {
			errs = append(errs, fmt.Errorf("delete the route to %s: %w", x.Destination, err))
		}
	}
	for _, x := range p.create {
		if err := r.Routes.Create(ctx, x); err != nil {
			r.recordFailure(nodes, x, err)
			errs = append(errs, fmt.Errorf("create the route to %s of node %s: %w", x.Destination, x.Node, err))
			continue
		}
		r.Log.Info("route created", "pods", x.Destination, "node", x.Node)
		if !x.Incomplete {
			p.missing[x.Node]--
		}
	}
	return errors.Join(errs...)
}

func (r *reconciler) recordFailure(nodes []*corev1.Node, x cloud.Route, err error) {
	for _, n := range nodes {
		if n.Name == x.Node {
			r.Events.Eventf(n, corev1.EventTypeWarning, "FailedToCreateRoute", "Could not create route to %s for node %s: %v", x.Destination, n.Name, err)
		}
	}
}

// setCondition writes the node's condition NetworkUnavailable if it changes.
func (r *reconciler) setCondition(ctx context.Context, n *corev1.Node, missing bool) error {
	want := corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "RouteCreated", Message: "RouteController created a route"}
	if missing {
		want.Status, want.Reason, want.Message = corev1.ConditionTrue, "NoRouteCreated", "RouteController failed to create a route"
	}
	if have := unavailable(n); have != nil && have.Status == want.Status && have.Reason == want.Reason {
		return nil
	}
	want.LastTransitionTime, want.LastHeartbeatTime = metav1.Now(), metav1.Now()
	_, err := r.writer.Patch(ctx, all, n, types.StrategicMergePatchType,
		map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{want}}}, "status")
	return err
}
