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

// routeProtocol marks our routes in the kernels' tables. The number is free,
// and another than kube-proxy's.
const routeProtocol = 78

// atOnce is how many containers are spoken to at a time.
const atOnce = 8

// routes are in each node container's table, one to the pods of each other.
type routes struct {
	engine  *engine
	cluster string
}

// kernelRoute is a route as `ip -json route` shows it.
type kernelRoute struct{ Dst, Gateway string }

// List looks into every container that runs. A route is complete when all
// others than its own node's have it, by the same address.
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

// merge makes one route of what the containers have for each destination.
func merge(all []container, tables map[string][]kernelRoute, cluster string) ([]cloud.Route, error) {
	at := map[string]string{} // the node with an address
	for i := range all {
		for _, a := range all[i].addresses(cluster) {
			at[a] = all[i].name()
		}
	}
	holders := map[netip.Prefix]map[string]int{} // of each destination, how many lead to which node
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
		node := names[len(names)-1] // "" only if nobody knows any
		others := len(tables)
		if _, runs := tables[node]; runs {
			others--
		}
		out = append(out, cloud.Route{Node: node, Destination: dst, Incomplete: len(names) > 1 || by[node] < others})
	}
	slices.SortFunc(out, func(a, b cloud.Route) int { return a.Destination.Compare(b.Destination) })
	return out, nil
}

// Create tells every other container that runs the way to a node's pods. The
// node itself has them on its bridge: what it may have been told is taken back.
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

// Delete takes the way to pods back from every container that runs.
func (r *routes) Delete(ctx context.Context, route cloud.Route) error {
	all, err := r.engine.nodes(ctx, r.cluster)
	if err != nil {
		return err
	}
	return each(ctx, running(all), func(ctx context.Context, c *container) error { return r.remove(ctx, c, route.Destination) })
}

// remove empties a container's table of our routes to a destination: flush, and
// not delete, because none is fine.
func (r *routes) remove(ctx context.Context, c *container, dst netip.Prefix) error {
	_, err := r.engine.run(ctx, c.ID, ip(dst, "flush", "exact", dst.String())...)
	return err
}

// ip is the command that does something to our routes of a destination's family.
func ip(dst netip.Prefix, do ...string) []string {
	family := "-4"
	if dst.Addr().Is6() {
		family = "-6"
	}
	return append(append([]string{"ip", family, "route"}, do...), "proto", strconv.Itoa(routeProtocol))
}

// running are the containers in which a command can be run.
func running(all []container) (out []*container) {
	for i := range all {
		if all[i].State == "running" {
			out = append(out, &all[i])
		}
	}
	return out
}

// each does something to several containers. One that has stopped meanwhile has
// no routes, and needs none.
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
