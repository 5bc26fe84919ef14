package resourcequota

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/client"
	"podium/pkg/client/discovery"
	"podium/pkg/client/informer"
	"podium/pkg/client/metadata"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/quota"
	"podium/pkg/scheme"
)

// rediscovery is the period in which resources that quotas limit and the server does not
// serve yet are looked for.
const rediscovery = 10 * time.Second

// sources holds copies of the objects that quotas limit: pods, services, persistent
// volume claims and resource claims always, the metadata of others from when a quota
// first limits them.
type sources struct {
	controller.Context
	*reconciler
	discovery *discovery.Client
	asked     chan struct{} // has room for one signal: a resource is wanted

	mu      sync.Mutex
	ready   map[schema.GroupResource]*source
	wanted  map[schema.GroupResource]bool // without an informer yet
	waiting []loop.Syncer
}

func newSources(c controller.Context, r *reconciler) *sources {
	s := &sources{
		Context: c, reconciler: r, discovery: discovery.New(c.Client), asked: make(chan struct{}, 1),
		ready: map[schema.GroupResource]*source{}, wanted: map[schema.GroupResource]bool{},
	}
	follow[*corev1.Pod](s, corev1.Resource("pods"))
	follow[*corev1.Service](s, corev1.Resource("services"))
	follow[*corev1.PersistentVolumeClaim](s, corev1.Resource("persistentvolumeclaims"))
	follow[*resourcev1.ResourceClaim](s, resourcev1.Resource("resourceclaims"))
	return s
}

// follow makes the shared informer of T a source, if T is served.
func follow[T scheme.Object](s *sources, gr schema.GroupResource) {
	if s.Client.Scheme().ByResource(gr.WithVersion("v1")) == nil {
		return
	}
	i := informers.For[T](s.Informers)
	s.waiting = append(s.waiting, i)
	read := func(ctx context.Context, namespace string) (*source, error) {
		l, err := client.For[T](s.Client).In(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		return &source{count: func(string) int { return len(l.Items) }, in: func(string) []metav1.Object { return objects(l.Items) }}, nil
	}
	s.ready[gr] = &source{count: i.Count, in: func(namespace string) []metav1.Object { return objects(i.In(namespace)) }, read: read}
	e := quota.For(gr)
	i.OnAnyChange(func(old, new metav1.Object) { s.objectChanged(e, old, new) })
}

func objects[T metav1.Object](list []T) (out []metav1.Object) {
	for _, obj := range list {
		out = append(out, obj)
	}
	return out
}

// syncers returns the informers to wait for before the first reconcile.
func (s *sources) syncers() []loop.Syncer { return s.waiting }

// of returns the source of a resource, nil if it is not ready. It makes run start one:
// the quotas that limit the resource are woken when it is ready.
func (s *sources) of(gr schema.GroupResource) *source {
	s.mu.Lock()
	defer s.mu.Unlock()
	src, ok := s.ready[gr]
	if !ok && !s.wanted[gr] {
		s.wanted[gr] = true
		select {
		case s.asked <- struct{}{}:
		default: // run has not taken the last signal
		}
	}
	return src
}

// present reads from the API what q limits. It returns a replacement of the method of, and how
// many objects it has read.
func (s *sources) present(ctx context.Context, q *corev1.ResourceQuota) (of func(schema.GroupResource) *source, n int, err error) {
	now := map[schema.GroupResource]*source{}
	for _, gr := range quota.Sources(q.Spec.Hard) {
		src := s.of(gr)
		if src == nil {
			continue // its usage stays as it is
		}
		read, err := src.read(ctx, q.Namespace)
		if err != nil {
			return nil, 0, fmt.Errorf("list %s: %w", gr, err)
		}
		now[gr] = read
		n += read.count(q.Namespace)
	}
	return func(gr schema.GroupResource) *source { return now[gr] }, n, nil
}

// run starts informers of wanted resources until ctx ends. It leaves no goroutine
// behind.
func (s *sources) run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(rediscovery)
	defer tick.Stop()
	for {
		if err := s.start(ctx, &wg); err != nil && ctx.Err() == nil {
			s.Log.Warn("discovery failed", "err", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.asked:
		case <-tick.C:
		}
	}
}

// start starts informers for the wanted resources that the server serves.
func (s *sources) start(ctx context.Context, wg *sync.WaitGroup) error {
	s.mu.Lock()
	idle := len(s.wanted) == 0
	s.mu.Unlock()
	if idle {
		return nil
	}
	catalog, err := s.discovery.Catalog(ctx)
	if err != nil {
		return err
	}
	for _, r := range catalog.Resources {
		gr := r.GVR().GroupResource()
		s.mu.Lock()
		start := s.wanted[gr] && r.Namespaced && r.Supports("list", "watch")
		if start {
			delete(s.wanted, gr)
			s.ready[gr] = nil // until the first list is complete
		}
		s.mu.Unlock()
		if start {
			wg.Go(func() { s.count(ctx, wg, gr, metadata.Of(s.Client, r.Kind)) })
		}
	}
	return nil
}

// count counts the objects of a resource until ctx ends.
func (s *sources) count(ctx context.Context, wg *sync.WaitGroup, gr schema.GroupResource, kind metadata.Kind) {
	i, e := informer.New(kind, informer.Options{Log: s.Log}), quota.For(gr)
	i.OnAnyChange(func(old, new metav1.Object) {
		if old == nil || new == nil {
			s.objectChanged(e, old, new)
		}
	})
	wg.Go(func() { _ = i.Run(ctx) }) // it returns nil when ctx ends
	if i.WaitSynced(ctx) != nil {
		return
	}
	s.mu.Lock()
	s.ready[gr] = &source{count: i.Count, read: func(ctx context.Context, namespace string) (*source, error) {
		list, err := kind.In(ctx, namespace)
		return &source{count: func(string) int { return len(list) }}, err
	}}
	s.mu.Unlock()
	s.wakeLimiting(e)
}
