package route

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/cloud"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
)

// patience bounds one look at all routes; pace is the least time between two.
const (
	patience = time.Minute
	pace     = 200 * time.Millisecond
)

// all is the one key: routes are looked at together.
var all = loop.Key{Name: "routes"}

// Config is what the controller needs.
type Config struct {
	kit.Kit
	Routes       cloud.Routes
	ClusterCIDRs []netip.Prefix // the pods' addresses
	Period       time.Duration  // how often all routes are looked at, whatever happens
}

// Controller keeps the routes.
type Controller struct {
	cfg   Config
	nodes client.Resource[*corev1.Node]
	loop  *loop.Loop
}

// New builds the controller and says what wakes it; the views must not run yet.
func New(cfg Config) *Controller {
	c := &Controller{cfg: cfg, nodes: client.For[*corev1.Node](cfg.Client)}
	c.loop = cfg.Loop("route_controller", pace, c.reconcile, cfg.Views.Nodes)
	cfg.Views.Nodes.OnChange(func(old, new *corev1.Node) {
		if !sameRoutes(old, new) {
			c.loop.Wake(all)
		}
	})
	c.loop.Wake(all) // routes may be left of nodes that are gone
	return c
}

// Run keeps the routes until ctx ends; they stay.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

func (c *Controller) reconcile(ctx context.Context, _ loop.Key) (loop.Result, error) {
	ask, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	have, err := c.cfg.Routes.List(ask)
	if err != nil {
		return loop.Done, fmt.Errorf("list the provider's routes: %w", err)
	}
	nodes := c.cfg.Views.Nodes.List()
	p := decide(nodes, have, c.cfg.ClusterCIDRs)
	errs := []error{c.apply(ask, &p, nodes)}
	for _, n := range nodes {
		if missing, ours := p.missing[n.Name]; ours {
			errs = append(errs, c.tell(ctx, n, missing > 0))
		}
	}
	return loop.After(c.cfg.Period), errors.Join(errs...)
}

// apply removes, then creates, and notes which nodes have their routes then. A
// route that cannot be completed is there still: its node keeps its pods.
func (c *Controller) apply(ctx context.Context, p *plan, nodes []*corev1.Node) error {
	var errs []error
	for _, r := range p.remove {
		c.cfg.Log.Info("route removed", "pods", r.Destination, "node", r.Node)
		if err := c.cfg.Routes.Delete(ctx, r); err != nil {
			errs = append(errs, fmt.Errorf("remove the route to %s: %w", r.Destination, err))
		}
	}
	for _, r := range p.create {
		if err := c.cfg.Routes.Create(ctx, r); err != nil {
			c.complain(nodes, r, err)
			errs = append(errs, fmt.Errorf("make the route to %s of node %s: %w", r.Destination, r.Node, err))
			continue
		}
		c.cfg.Log.Info("route made", "pods", r.Destination, "node", r.Node)
		if !r.Incomplete {
			p.missing[r.Node]--
		}
	}
	return errors.Join(errs...)
}

func (c *Controller) complain(nodes []*corev1.Node, r cloud.Route, err error) {
	for _, n := range nodes {
		if n.Name == r.Node {
			c.cfg.Events.Eventf(n, corev1.EventTypeWarning, "FailedToCreateRoute", "Could not create route to %s for node %s: %v", r.Destination, n.Name, err)
		}
	}
}

// tell writes the node's condition, if it is to change.
func (c *Controller) tell(ctx context.Context, n *corev1.Node, missing bool) error {
	want := corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "RouteCreated", Message: "RouteController created a route"}
	if missing {
		want.Status, want.Reason, want.Message = corev1.ConditionTrue, "NoRouteCreated", "RouteController failed to create a route"
	}
	if have := unavailable(n); have != nil && have.Status == want.Status && have.Reason == want.Reason {
		return nil
	}
	want.LastTransitionTime, want.LastHeartbeatTime = metav1.Now(), metav1.Now()
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": n.UID}, "status": map[string]any{"conditions": []corev1.NodeCondition{want}},
	})
	if err != nil {
		return err
	}
	got, err := c.nodes.Patch(ctx, n.Name, types.StrategicMergePatchType, patch, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the condition of node %s: %w", n.Name, err)
	}
	c.loop.Wrote(all, c.cfg.Views.Nodes, got.ResourceVersion)
	return nil
}
