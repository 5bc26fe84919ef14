package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/clienttest"
	"podium/pkg/cloud"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/manager"
)

var cluster = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}

func node(name string, age int, pods ...string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(1e9-int64(age), 0)},
		Spec:       corev1.NodeSpec{PodCIDRs: pods},
	}
}

func to(name, pods string) cloud.Route {
	return cloud.Route{Node: name, Destination: netip.MustParsePrefix(pods)}
}

func partly(r cloud.Route) cloud.Route {
	r.Incomplete = true
	return r
}

func shown(routes []cloud.Route) (out []string) {
	for _, r := range routes {
		out = append(out, r.Node+" "+r.Destination.String())
	}
	return out
}

func TestDecide(t *testing.T) {
	for name, tc := range map[string]struct {
		reason         string
		nodes          []*corev1.Node
		have           []cloud.Route
		create, remove []string
		missing        map[string]int
	}{
		"New":      {"a node comes", []*corev1.Node{node("a", 0, "10.244.1.0/24")}, nil, []string{"a 10.244.1.0/24"}, nil, map[string]int{"a": 1}},
		"Done":     {"all is there", []*corev1.Node{node("a", 0, "10.244.1.0/24")}, []cloud.Route{to("a", "10.244.1.0/24")}, nil, nil, map[string]int{"a": 0}},
		"Partly":   {"a machine lacks it: the node is reached by others", []*corev1.Node{node("a", 0, "10.244.1.0/24")}, []cloud.Route{partly(to("a", "10.244.1.0/24"))}, []string{"a 10.244.1.0/24"}, nil, map[string]int{"a": 0}},
		"Gone":     {"the node is deleted", nil, []cloud.Route{to("a", "10.244.1.0/24")}, nil, []string{"a 10.244.1.0/24"}, map[string]int{}},
		"Moved":    {"the range is another node's now: replaced, not removed", []*corev1.Node{node("b", 0, "10.244.1.0/24")}, []cloud.Route{to("a", "10.244.1.0/24")}, []string{"b 10.244.1.0/24"}, nil, map[string]int{"b": 1}},
		"Foreign":  {"routes beyond the pods are somebody's", nil, []cloud.Route{to("", "192.0.2.0/24")}, nil, nil, map[string]int{}},
		"Beyond":   {"a range that is not the cluster's gets none", []*corev1.Node{node("a", 0, "192.0.2.0/24")}, nil, nil, nil, map[string]int{}},
		"TooWide":  {"nor one that is wider", []*corev1.Node{node("a", 0, "10.0.0.0/8")}, nil, nil, nil, map[string]int{}},
		"Claimed":  {"of two the older gets it", []*corev1.Node{node("a", 1, "10.244.1.0/24"), node("b", 2, "10.244.1.0/24")}, nil, []string{"b 10.244.1.0/24"}, nil, map[string]int{"a": 1, "b": 1}},
		"Unranged": {"no range yet", []*corev1.Node{node("a", 0)}, nil, nil, nil, map[string]int{"a": 1}},
		"Nonsense": {"what cannot be read is none", []*corev1.Node{node("a", 0, "x")}, nil, nil, nil, map[string]int{"a": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			p := decide(tc.nodes, tc.have, cluster)
			if d := cmp.Diff(tc.create, shown(p.create)) + cmp.Diff(tc.remove, shown(p.remove)) + cmp.Diff(tc.missing, p.missing); d != "" {
				t.Errorf("%s: %s", tc.reason, d)
			}
		})
	}
}

// table is a provider's routes in memory.
type table struct {
	mu    sync.Mutex
	there map[netip.Prefix]cloud.Route
	fails string // destination whose route cannot be created
	down  bool
	lists int
}

var errDown = errors.New("the provider is down")

func (t *table) List(context.Context) ([]cloud.Route, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lists++
	if t.down {
		return nil, errDown
	}
	var out []cloud.Route
	for _, r := range t.there {
		out = append(out, r)
	}
	return out, nil
}

func (t *table) Create(_ context.Context, r cloud.Route) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.down || r.Destination.String() == t.fails {
		return errDown
	}
	r.Incomplete = false
	t.there[r.Destination] = r
	return nil
}

func (t *table) Delete(_ context.Context, r cloud.Route) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.down {
		return errDown
	}
	delete(t.there, r.Destination)
	return nil
}

func (t *table) set(change func(*table)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(t)
}

func (t *table) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for _, r := range t.there {
		out = append(out, r.Node+" "+r.Destination.String())
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

func TestRoutesFollowNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := clienttest.New()
		c, log := api.Client(t), slog.New(slog.DiscardHandler)
		nodes := client.For[*corev1.Node](c)
		routes := &table{there: map[netip.Prefix]cloud.Route{}}
		left := to("gone", "10.244.9.0/24")
		routes.there[left.Destination] = left
		start := func() (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			var g errgroup.Group
			g.Go(func() error {
				return manager.Run(ctx, &manager.Config{Client: c, Log: log}, func() (manager.Term, error) {
					spec := Spec(Options{Routes: routes, ClusterCIDRs: cluster, Period: 10 * time.Second})
					return manager.Term{Informers: informers.New(c, log), Controllers: []controller.Spec{spec}}, nil
				})
			})
			return func() {
				cancel()
				if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		}
		create := func(n *corev1.Node) {
			t.Helper()
			if _, err := nodes.Create(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
		want := func(what, table string, conditions string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			list, err := nodes.List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, n := range list.Items {
				if c := unavailable(n); c != nil {
					got = append(got, n.Name+"="+string(c.Status))
				}
			}
			if d := cmp.Diff(table, routes.text()) + cmp.Diff(conditions, fmt.Sprint(got)); d != "" {
				t.Errorf("%s: %s", what, d)
			}
		}
		stop := start()
		want("what is left of before goes, without any node", "", "[]")
		create(node("a", 2, "10.244.1.0/24"))
		want("a node comes", "a 10.244.1.0/24", "[a=False]")
		routes.set(func(r *table) { r.fails = "10.244.2.0/24" })
		create(node("b", 1, "10.244.2.0/24"))
		want("a route cannot be made", "a 10.244.1.0/24", "[a=False b=True]")
		routes.set(func(r *table) { r.fails = "" })
		time.Sleep(time.Minute)
		want("it can again", "a 10.244.1.0/24; b 10.244.2.0/24", "[a=False b=False]")
		routes.set(func(r *table) { delete(r.there, netip.MustParsePrefix("10.244.1.0/24")) })
		time.Sleep(10 * time.Second)
		want("somebody removes one", "a 10.244.1.0/24; b 10.244.2.0/24", "[a=False b=False]")
		routes.set(func(r *table) { r.down, r.lists = true, 0; delete(r.there, netip.MustParsePrefix("10.244.1.0/24")) })
		time.Sleep(10 * time.Minute)
		want("nobody knows", "b 10.244.2.0/24", "[a=False b=False]")
		if routes.lists > 60 {
			t.Errorf("the provider was asked %d times in ten minutes", routes.lists)
		}
		stop()
		routes.set(func(r *table) { r.down = false })
		if err := nodes.Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		stop = start()
		want("a restart finds what was missed", "a 10.244.1.0/24", "[a=False]")
		stop()
		want("routes outlive the controller", "a 10.244.1.0/24", "[a=False]")
	})
}
