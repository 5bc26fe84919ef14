package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"podium/pkg/cloud"
)

// routeProtocol marks the provider's routes in the kernels' tables. It must differ from
// kube-proxy's.
const routeProtocol = 78

// atOnce is how many containers are used concurrently.
const atOnce = 8

// routes are the routes to the other nodes' pods in each node container's table.
type routes struct {
	engine  *engine
	cluster string
}

// kernelRoute is a route in the output of `ip -json route`.
type kernelRoute struct{ Dst, Gateway string }

// List reads the routing tables of all running containers. A route is complete if all
// containers except its own node's have it, with the same gateway.
func (r *routes) List(ctx context.Context) ([]cloud.Route, error) {
	all, err := r.engine.nodes(ctx, r.cluster)
	if err != nil {
		return nil, err
	}
	tables := map[string][]kernelRoute{}
	var mu sync.Mutex
	err = each(ctx, running(all), func(ctx context.Context, c *container) error {
		found, err := r.table(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		tables[c.name()] = found
		return err
	})
	if err != nil {
		return nil, err
	}
	return merge(all, tables, r.cluster)
}

func (r *routes) table(ctx context.Context, c *container) (found []kernelRoute, err error) {
	for _, family := range []string{"-4", "-6"} {
		text, err := r.engine.run(ctx, c.ID, "ip", family, "-json", "route", "show", "proto", strconv.Itoa(routeProtocol))
		if err != nil {
			return nil, err
		}
		var some []kernelRoute
		if text == "" {
			continue // no route at all
		}
		if err := json.Unmarshal([]byte(text), &some); err != nil {
			return nil, fmt.Errorf("read the routes: %w", err)
		}
		found = append(found, some...)
	}
	return found, nil
}

// merge combines the containers' routes to each destination into one route.
func merge(all []container, tables map[string][]kernelRoute, cluster string) ([]cloud.Route, error) {
	at := map[string]string{} // the node with an address
	for i := range all {
		for _, a := range all[i].addresses(cluster) {
			at[a] = all[i].name()
		}
	}
	holders := map[netip.Prefix]map[string]int{} // by destination: the number of routes that lead to each node
	for _, table := range tables {
		for _, k := range table {
			dst, err := netip.ParsePrefix(k.Dst)
			if err != nil {
				return nil, fmt.Errorf("a route to %q: %w", k.Dst, err)
			}
			if holders[dst] == nil {
				holders[dst] = map[string]int{}
			}
			holders[dst][at[k.Gateway]]++
		}
	}
	var out []cloud.Route
	for dst, by := range holders {
		names := slices.Sorted(maps.Keys(by))
		node := names[len(names)-1] // "" only if no node is known
		others := len(tables)
		if _, runs := tables[node]; runs {
			others--
		}
		out = append(out, cloud.Route{Node: node, Destination: dst, Incomplete: len(names) > 1 || by[node] < others})
	}
	slices.SortFunc(out, func(a, b cloud.Route) int { return a.Destination.Compare(b.Destination) })
	return out, nil
}

// Create adds the route to a node's pods in all other running containers. The node itself
// reaches its pods over its bridge: Create deletes such a route there.
func (r *routes) Create(ctx context.Context, route cloud.Route) error {
	all, err := r.engine.nodes(ctx, r.cluster)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(c container) bool { return c.name() == route.Node })
	if i < 0 {
		return fmt.Errorf("container %s: %w", route.Node, cloud.ErrNotFound)
	}
	via, ok := all[i].address(r.cluster, route.Destination.Addr().Is4())
	if !ok {
		return fmt.Errorf("container %s has no address of the family of %s on the cluster's network", route.Node, route.Destination)
	}
	return each(ctx, running(all), func(ctx context.Context, c *container) error {
		if c.name() == route.Node {
			return r.remove(ctx, c, route.Destination)
		}
		_, err := r.engine.run(ctx, c.ID, ip(route.Destination, "replace", route.Destination.String(), "via", via)...)
		return err
	})
}

// Delete removes the route from all running containers.
func (r *routes) Delete(ctx context.Context, route cloud.Route) error {
	all, err := r.engine.nodes(ctx, r.cluster)
	if err != nil {
		return err
	}
	return each(ctx, running(all), func(ctx context.Context, c *container) error { return r.remove(ctx, c, route.Destination) })
}

// remove deletes the provider's routes to a destination in a container. It uses flush, which
// succeeds if there are none.
func (r *routes) remove(ctx context.Context, c *container, dst netip.Prefix) error {
	_, err := r.engine.run(ctx, c.ID, ip(dst, "flush", "exact", dst.String())...)
	return err
}

// ip returns an ip command on the provider's routes of a destination's family.
func ip(dst netip.Prefix, do ...string) []string {
	family := "-4"
	if dst.Addr().Is6() {
		family = "-6"
	}
	return append(append([]string{"ip", family, "route"}, do...), "proto", strconv.Itoa(routeProtocol))
}

// running returns the containers in which commands can be run.
func running(all []container) (out []*container) {
	for i := range all {
		if all[i].State == "running" {
			out = append(out, &all[i])
		}
	}
	return out
}

// each calls do for several containers concurrently. It ignores containers that have stopped
// meanwhile: they have no routes.
func each(ctx context.Context, containers []*container, do func(context.Context, *container) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, c := range containers {
		g.Go(func() error {
			err := do(ctx, c)
			if err == nil || isStatus(err, 404) || isStatus(err, 409) {
				return nil
			}
			return fmt.Errorf("container %s: %w", c.name(), err)
		})
	}
	return g.Wait()
}
