package nodeipam

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

// Range is an address range that is divided into subnets of one size.
type Range struct {
	CIDR     netip.Prefix
	MaskSize int
}

// Options configure the controller.
type Options struct {
	Disabled bool           // another component assigns the subnets
	Ranges   []Range        // one, or one per address family
	Reserved []netip.Prefix // parts of the ranges to leave out: the service addresses
}

// Spec describes the node IPAM controller.
func Spec(o Options) controller.Spec {
	s := controller.Spec{Name: "node-ipam-controller", Account: "node-controller", Component: "cidrAllocator", Workers: 5}
	if !o.Disabled {
		s.New = o.build
	}
	return s
}

// reconciler's keys are nodes.
type reconciler struct {
	controller.Context
	*loop.Loop
	ranges []Range
	nodes  *informer.Informer[*corev1.Node]
	writer controller.Writer[*corev1.Node]

	mu     sync.Mutex
	filled bool // the pools contain the nodes' subnets
	pools  []*pool
	given  map[string][]netip.Prefix // by node
}

func (o Options) build(c controller.Context) (controller.Runner, error) {
	r := &reconciler{Context: c, ranges: o.Ranges, nodes: informers.For[*corev1.Node](c.Informers), given: map[string][]netip.Prefix{}}
	for _, from := range o.Ranges {
		p, err := newPool(from.CIDR, from.MaskSize)
		if err != nil {
			return nil, err
		}
		for _, reserved := range o.Reserved {
			p.mark(reserved)
		}
		r.pools = append(r.pools, p)
	}
	r.Loop = c.NewLoop("node_ipam", 0, r.reconcile, r.nodes)
	r.writer = controller.NewWriter(c, r.Loop, r.nodes)
	loop.WakeOn(r.Loop, r.nodes, loop.Self)
	return r, nil
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	n, ok := r.nodes.Get("", key.Name)
	if !ok {
		r.release(key.Name)
		return loop.Done, nil
	}
	if len(n.Spec.PodCIDRs) > 0 || n.Spec.PodCIDR != "" {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.occupy(n)
		return loop.Done, nil
	}
	subnets, err := r.allocate(n.Name)
	if err != nil {
		r.Events.Eventf(n, corev1.EventTypeNormal, "CIDRNotAvailable", "Node %s status is now: %s", n.Name, "CIDRNotAvailable")
		return loop.Done, err
	}
	return loop.Done, r.write(ctx, key, n, subnets)
}

// allocate reserves a subnet of each range for the node. It returns the same subnets if it is
// called again.
func (r *reconciler) allocate(node string) ([]netip.Prefix, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fill()
	if have := r.given[node]; have != nil {
		return have, nil
	}
	var out []netip.Prefix
	for i, p := range r.pools {
		s, err := p.take()
		if err != nil {
			for j, taken := range out {
				r.pools[j].free(taken)
			}
			return nil, fmt.Errorf("range %s: %w", r.ranges[i].CIDR, err)
		}
		out = append(out, s)
	}
	r.given[node] = out
	return out, nil
}

// fill marks the subnets of all existing nodes as used, before the first allocation.
func (r *reconciler) fill() {
	if r.filled {
		return
	}
	for _, n := range r.nodes.List() {
		r.occupy(n)
	}
	r.filled = true
}

// occupy marks the subnets of a node as used and frees other subnets reserved for it.
func (r *reconciler) occupy(n *corev1.Node) {
	texts := n.Spec.PodCIDRs
	if len(texts) == 0 && n.Spec.PodCIDR != "" {
		texts = []string{n.Spec.PodCIDR}
	}
	var has []netip.Prefix
	for _, text := range texts {
		s, err := netip.ParsePrefix(text)
		if err != nil {
			r.Log.Warn("invalid pod CIDR", "node", n.Name, "podCIDR", text)
			continue
		}
		has = append(has, s)
	}
	if len(has) == 0 {
		return
	}
	r.freeAll(r.given[n.Name])
	r.given[n.Name] = has
	for _, s := range has {
		for _, p := range r.pools {
			p.mark(s)
		}
	}
}

func (r *reconciler) release(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.freeAll(r.given[node])
	delete(r.given, node)
}

func (r *reconciler) freeAll(list []netip.Prefix) {
	for _, s := range list {
		for _, p := range r.pools {
			p.free(s)
		}
	}
}

func (r *reconciler) write(ctx context.Context, key loop.Key, n *corev1.Node, subnets []netip.Prefix) error {
	texts := make([]string, len(subnets))
	for i, s := range subnets {
		texts[i] = s.String()
	}
	got, err := r.writer.Patch(ctx, key, n, types.StrategicMergePatchType, map[string]any{
		"spec": map[string]any{"podCIDR": texts[0], "podCIDRs": texts},
	})
	if got != nil {
		r.Log.Info("pod CIDRs assigned", "node", n.Name, "podCIDRs", texts)
	}
	return err
}
