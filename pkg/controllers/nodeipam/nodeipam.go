package nodeipam

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/controllers/kit"
	"podium/pkg/controllers/loop"
)

// Range is an address range to hand out, in subnets of a size.
type Range struct {
	CIDR     netip.Prefix
	MaskSize int
}

// Config is what the controller needs.
type Config struct {
	kit.Kit
	Ranges   []Range        // one, or one per address family
	Reserved []netip.Prefix // within the ranges, for others: the service addresses
}

// Controller is the node IPAM controller. Its keys are nodes.
type Controller struct {
	cfg   Config
	nodes client.Resource[*corev1.Node]
	loop  *loop.Loop

	mu     sync.Mutex
	filled bool // the pools know what the nodes have
	pools  []*pool
	given  map[string][]netip.Prefix // by node
}

// New builds the controller and says what wakes it; the views must not run yet.
func New(cfg Config) (*Controller, error) {
	c := &Controller{cfg: cfg, nodes: client.For[*corev1.Node](cfg.Client), given: map[string][]netip.Prefix{}}
	for _, r := range cfg.Ranges {
		p, err := newPool(r.CIDR, r.MaskSize)
		if err != nil {
			return nil, err
		}
		for _, reserved := range cfg.Reserved {
			p.mark(reserved)
		}
		c.pools = append(c.pools, p)
	}
	c.loop = cfg.Loop("node_ipam", 0, c.reconcile, cfg.Views.Nodes)
	loop.WakeOn(c.loop, cfg.Views.Nodes, loop.Self)
	return c, nil
}

// Run allocates until ctx ends.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

func (c *Controller) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	n, ok := c.cfg.Views.Nodes.Get("", key.Name)
	if !ok {
		c.release(key.Name)
		return loop.Done, nil
	}
	if len(n.Spec.PodCIDRs) > 0 || n.Spec.PodCIDR != "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.occupy(n)
		return loop.Done, nil
	}
	subnets, err := c.allocate(n.Name)
	if err != nil {
		c.cfg.Events.Eventf(n, corev1.EventTypeNormal, "CIDRNotAvailable", "Node %s status is now: %s", n.Name, "CIDRNotAvailable")
		return loop.Done, err
	}
	return loop.Done, c.write(ctx, n, subnets)
}

// allocate reserves a subnet of each range for the node; the same ones if it
// has some reserved already.
func (c *Controller) allocate(node string) ([]netip.Prefix, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fill()
	if have := c.given[node]; have != nil {
		return have, nil
	}
	var out []netip.Prefix
	for i, p := range c.pools {
		s, err := p.take()
		if err != nil {
			for j, taken := range out {
				c.pools[j].free(taken)
			}
			return nil, fmt.Errorf("range %s: %w", c.cfg.Ranges[i].CIDR, err)
		}
		out = append(out, s)
	}
	c.given[node] = out
	return out, nil
}

// fill reads what all nodes have, before the first allocation.
func (c *Controller) fill() {
	if c.filled {
		return
	}
	for _, n := range c.cfg.Views.Nodes.List() {
		c.occupy(n)
	}
	c.filled = true
}

// occupy notes what a node has. What it was to have instead, if anything, is free again.
func (c *Controller) occupy(n *corev1.Node) {
	texts := n.Spec.PodCIDRs
	if len(texts) == 0 && n.Spec.PodCIDR != "" {
		texts = []string{n.Spec.PodCIDR}
	}
	var has []netip.Prefix
	for _, text := range texts {
		s, err := netip.ParsePrefix(text)
		if err != nil {
			c.cfg.Log.Warn("node has a pod CIDR that is none", "node", n.Name, "podCIDR", text)
			continue
		}
		has = append(has, s)
	}
	if len(has) == 0 {
		return
	}
	c.freeAll(c.given[n.Name])
	c.given[n.Name] = has
	for _, s := range has {
		for _, p := range c.pools {
			p.mark(s)
		}
	}
}

func (c *Controller) release(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.freeAll(c.given[node])
	delete(c.given, node)
}

func (c *Controller) freeAll(list []netip.Prefix) {
	for _, s := range list {
		for _, p := range c.pools {
			p.free(s)
		}
	}
}

func (c *Controller) write(ctx context.Context, n *corev1.Node, subnets []netip.Prefix) error {
	texts := make([]string, len(subnets))
	for i, s := range subnets {
		texts[i] = s.String()
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": n.UID},
		"spec":     map[string]any{"podCIDR": texts[0], "podCIDRs": texts},
	})
	if err != nil {
		return err
	}
	got, err := c.nodes.Patch(ctx, n.Name, types.StrategicMergePatchType, patch)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write pod CIDR: %w", err)
	}
	c.loop.Wrote(loop.KeyOf(n), c.cfg.Views.Nodes, got.ResourceVersion)
	c.cfg.Log.Info("node has its pod addresses", "node", n.Name, "podCIDRs", texts)
	return nil
}
