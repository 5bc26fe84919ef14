package garbagecollector

import (
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client/discovery"
	"podium/pkg/client/informer"
	"podium/pkg/client/metadata"
	"podium/pkg/controller"
)

const (
	resync      = 5 * time.Second  // period of discovery
	syncTimeout = 30 * time.Second // for the first lists of new kinds: a kind that fails must not block the others
)

// monitors feed the graph, with one monitor for each served kind that can be listed, watched
// and deleted. Kinds are added and removed while they run.
type monitors struct {
	controller.Context
	discovery *discovery.Client
	graph     *graph
	wake      func([]types.UID)
	requests  chan chan error // requests to run for an immediate sync
	synced    chan struct{}   // closed after the first sync

	mu    sync.RWMutex
	kinds map[schema.GroupVersionResource]*monitor
}

// monitor watches the objects of one kind by their metadata.
type monitor struct {
	metadata.Kind
	waitSynced func(context.Context) error
	stop       context.CancelFunc // nil: the informer is shared and must not be stopped
}

func newMonitors(c controller.Context, g *graph, wake func([]types.UID)) *monitors {
	return &monitors{
		Context: c, discovery: discovery.New(c.Client), graph: g, wake: wake,
		requests: make(chan chan error), synced: make(chan struct{}), kinds: map[schema.GroupVersionResource]*monitor{},
	}
}

// run follows discovery until ctx ends.
func (m *monitors) run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(resync)
	defer tick.Stop()
	var request chan error
	for first := true; ; {
		err := m.sync(ctx, &wg)
		switch {
		case err == nil && first:
			close(m.synced)
			first = false
		case err != nil && ctx.Err() == nil:
			m.Log.Warn("discovery failed", "err", err)
		}
		if request != nil {
			request <- err
			request = nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case request = <-m.requests:
		case <-tick.C:
		}
	}
}

// WaitSynced blocks until all monitors have completed their first lists, or have timed out.
func (m *monitors) WaitSynced(ctx context.Context) error {
	select {
	case <-m.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refresh blocks until the graph contains all kinds that are served now.
func (m *monitors) refresh(ctx context.Context) error {
	done := make(chan error, 1)
	select {
	case m.requests <- done:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sync starts the monitors of new kinds, waits for their first lists, and stops the monitors
// of kinds that are no longer served. A group whose discovery failed keeps its monitors. The
// informers run in wg until ctx ends.
func (m *monitors) sync(ctx context.Context, wg *sync.WaitGroup) error {
	catalog, err := m.discovery.Catalog(ctx)
	if err != nil {
		return err
	}
	served := map[schema.GroupVersionResource]bool{}
	var fresh []*monitor
	for _, r := range catalog.Resources {
		if isEvents(r.GVR().GroupResource()) || !r.Supports("list", "watch", "delete") {
			continue // events expire by themselves; the others have no objects
		}
		served[r.GVR()] = true
		if m.kinds[r.GVR()] == nil {
			fresh = append(fresh, m.start(ctx, wg, metadata.Of(m.Client, r.Kind)))
		}
	}
	for _, k := range m.all() {
		if !served[k.GVR()] && !slices.Contains(catalog.Failed, k.GroupVersion()) && k.stop != nil {
			m.remove(k)
		}
	}
	limited, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	for _, k := range fresh {
		if err := k.waitSynced(limited); err != nil && ctx.Err() == nil {
			m.Log.Warn("first list not complete, collecting without it", "resource", k.Resource, "group", k.Group)
		}
		m.wake(m.graph.ownedBy(k.GroupVersionKind.GroupKind()))
	}
	return ctx.Err()
}

func isEvents(r schema.GroupResource) bool {
	return r.Resource == "events" && (r.Group == "" || r.Group == "events.k8s.io")
}

// start starts a monitor. It shares the informer that another controller has for
// the kind, if there is one.
func (m *monitors) start(ctx context.Context, wg *sync.WaitGroup, kind metadata.Kind) *monitor {
	k := &monitor{Kind: kind}
	m.mu.Lock()
	m.kinds[k.GVR()] = k
	m.mu.Unlock()
	changed := func(old, new metav1.Object) {
		if new == nil {
			m.wake(m.graph.remove(old.GetUID()))
		} else {
			m.wake(m.graph.put(nodeOf(kind, new)))
		}
	}
	if shared, ok := m.Informers.OfKind(k.GroupVersionKind); ok {
		shared.OnAnyChange(changed)
		k.waitSynced = shared.WaitSynced
		return k
	}
	own := informer.New(kind, informer.Options{Log: m.Log})
	own.OnAnyChange(changed)
	ctx, k.stop = context.WithCancel(ctx)
	k.waitSynced = own.WaitSynced
	wg.Go(func() { _ = own.Run(ctx) }) // it returns nil when ctx ends
	return k
}

// remove stops the monitor of a kind that is no longer served, and removes its objects.
func (m *monitors) remove(k *monitor) {
	k.stop()
	m.mu.Lock()
	delete(m.kinds, k.GVR())
	m.mu.Unlock()
	for _, uid := range m.graph.ofKind(k.GVR()) {
		m.wake(m.graph.remove(uid))
	}
}

// all returns the monitored kinds.
func (m *monitors) all() (out []*monitor) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, k := range m.kinds {
		out = append(out, k)
	}
	return out
}

// kindOf returns the kind that an owner reference refers to.
func (m *monitors) kindOf(ref metav1.OwnerReference) (metadata.Kind, bool) {
	for _, k := range m.all() {
		if k.GroupVersionKind.Kind == ref.Kind && k.Group == groupOf(ref) {
			return k.Kind, true
		}
	}
	return metadata.Kind{}, false
}
