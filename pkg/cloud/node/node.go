package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/cloud"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
)

// patience bounds one call of the provider.
const patience = 30 * time.Second

// Config is what both controllers need.
type Config struct {
	kit.Kit
	Provider *cloud.Provider // with Instances
	Refresh  time.Duration   // how often the addresses of a node are looked at
	Monitor  time.Duration   // how often the machine of a node that is not ready is
}

// Controller meets new nodes and keeps the addresses of all.
type Controller struct {
	cfg Config
	writer

	mu  sync.Mutex
	due map[types.UID]time.Time // when a node's addresses are looked at again
}

// New builds the controller and says what wakes it; the views must not run yet.
func New(cfg Config) *Controller {
	c := &Controller{cfg: cfg, due: map[types.UID]time.Time{}}
	c.writer = writer{kit: cfg.Kit, nodes: client.For[*corev1.Node](cfg.Client)}
	c.loop = cfg.Loop("cloud_node_controller", 0, c.reconcile, cfg.Views.Nodes)
	loop.WakeOn(c.loop, cfg.Views.Nodes, loop.Self)
	cfg.Views.Nodes.OnChange(c.forget)
	return c
}

// Run meets nodes until ctx ends.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

func (c *Controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	n, ok := c.cfg.Views.Nodes.Get("", key.Name)
	if !ok || !mine(n, c.cfg.Provider.Name) {
		return loop.Done, nil
	}
	fresh := tainted(n, taintNew)
	if left := c.left(n); left > 0 && !fresh {
		return loop.After(left), nil
	}
	ask, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	md, err := c.cfg.Provider.Instances.Metadata(ask, n)
	if err != nil {
		return loop.Done, fmt.Errorf("ask provider %s about the node's machine: %w", c.cfg.Provider.Name, err)
	}
	n = n.DeepCopy()
	if gone, err := c.readdress(ctx, n, md); err != nil || gone {
		return loop.Done, err
	}
	if fresh {
		if gone, err := c.meet(ctx, n, md); err != nil || gone {
			return loop.Done, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due[n.UID] = time.Now().Add(c.cfg.Refresh)
	return loop.After(c.cfg.Refresh), nil
}

// left is how long the node's addresses are taken to be right.
func (c *Controller) left(n *corev1.Node) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.due[n.UID])
}

func (c *Controller) forget(old, new *corev1.Node) {
	if old == nil || new != nil && new.UID == old.UID {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.due, old.UID)
}

// readdress gives the node its machine's addresses.
func (c *Controller) readdress(ctx context.Context, n *corev1.Node, md cloud.Metadata) (gone bool, err error) {
	want, err := addresses(n, md.Addresses)
	if err != nil {
		return false, err
	}
	if len(want) == 0 || apiequality.Semantic.DeepEqual(want, n.Status.Addresses) {
		return false, nil
	}
	return c.patch(ctx, n, nil, change{"status": change{"addresses": want}}, "status")
}

// meet tells the node which machine it is and lets pods on it, at once.
func (c *Controller) meet(ctx context.Context, n *corev1.Node, md cloud.Metadata) (gone bool, err error) {
	spec := change{"taints": without(n, taintNew)}
	switch {
	case n.Spec.ProviderID == "":
		spec["providerID"] = md.ProviderID
	case n.Spec.ProviderID != md.ProviderID:
		return false, fmt.Errorf("the node has the provider ID %s, its machine has %s: delete the node, and its kubelet registers it anew", n.Spec.ProviderID, md.ProviderID)
	}
	gone, err = c.patch(ctx, n, change{"labels": labels(md)}, change{"spec": spec})
	if err == nil && !gone {
		c.cfg.Log.Info("node met", "node", n.Name, "providerID", md.ProviderID, "zone", md.Zone)
		c.cfg.Events.Event(n, corev1.EventTypeNormal, "Synced", "Node synced successfully")
	}
	return gone, err
}
