package aggregation

import (
	"context"
	"crypto/tls"
	"log/slog"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"podium/pkg/apiserver/discovery"
	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
	"podium/pkg/storage/watchcache"
)

// Objects are the API's objects. Recent is a read that may be stale; see
// endpoints.API.
type Objects interface {
	registry.Backend
	Recent(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) scheme.Object
}

// Config configures an Aggregator.
type Config struct {
	// Objects may be set later, before Run and the first request.
	Objects Objects

	// Certificate is the client certificate that extension API servers trust to name
	// users; nil: none.
	Certificate func() *tls.Certificate
	// Dial opens connections to Services; nil: TCP, with a timeout of 10 s.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// ToEndpoints connects to a ready endpoint of a Service instead of its cluster IP.
	ToEndpoints bool

	// Ready returns nil once the server's own kinds are known and APIServices can be
	// written; nil: always.
	Ready func() error
	// Publish replaces what other servers serve. It is called after each change, one
	// call at a time; nil: not published.
	Publish func([]Published)

	Closing  context.Context // ends when the server shuts down, which ends all streams; nil: never
	Registry *prometheus.Registry
	Log      *slog.Logger
}

// Published is what is known of a group version that another server serves.
type Published struct {
	discovery.Remote
	Path    string // such as "apis/metrics.k8s.io/v1beta1"
	OpenAPI []byte // the OpenAPI v3 document as JSON; nil: none

	OpenAPIV2 []byte // the OpenAPI v2 document of the whole server as JSON; nil: none
}

// Aggregator knows the APIServices. It is safe for concurrent use.
type Aggregator struct {
	Config
	metrics *metrics

	mu      sync.Mutex // held while remotes is replaced
	remotes atomic.Pointer[map[schema.GroupVersion]*remote]
	changed chan struct{} // wakes Run; of capacity 1

	local local

	publishing sync.Mutex
}

// New returns an Aggregator that knows no APIService yet. Its followers feed it.
func New(cfg Config) *Aggregator {
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	if cfg.Closing == nil {
		cfg.Closing = context.Background()
	}
	if cfg.Ready == nil {
		cfg.Ready = func() error { return nil }
	}
	a := &Aggregator{Config: cfg, metrics: newMetrics(cfg.Registry), changed: make(chan struct{}, 1)}
	a.local.changed = make(chan struct{}, 1)
	a.remotes.Store(&map[schema.GroupVersion]*remote{})
	return a
}

// Run checks the APIServices and keeps those of this server's own group versions. It
// blocks until ctx ends.
func (a *Aggregator) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { a.keepLocal(ctx) })
	workers := map[*remote]context.CancelFunc{}
	for {
		current := map[*remote]bool{}
		for _, r := range *a.remotes.Load() {
			current[r] = true
			if workers[r] == nil {
				life, stop := context.WithCancel(ctx)
				workers[r] = stop
				all.Go(func() { r.run(life) })
			}
		}
		for r, stop := range workers {
			if !current[r] {
				stop()
				delete(workers, r)
			}
		}
		a.publish()
		select {
		case <-ctx.Done():
			for _, stop := range workers {
				stop()
			}
			return
		case <-a.changed:
		}
	}
}

// publish passes what is known of the remote group versions to Config.Publish.
func (a *Aggregator) publish() {
	if a.Publish == nil {
		return
	}
	a.publishing.Lock()
	defer a.publishing.Unlock()
	var all []Published
	for _, r := range *a.remotes.Load() {
		all = append(all, r.published())
	}
	a.Publish(all)
}

// wake makes the loop that receives from c run once more.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it will run anyway
	}
}

// Follow adds the followers that feed the Aggregator to those by resource.
func (a *Aggregator) Follow(followers map[schema.GroupResource]watchcache.Follower) {
	followers[resource().GroupResource()] = services{a}
	followers[schema.GroupResource{Resource: "services"}] = changes{a}
	followers[discoveryv1.Resource("endpointslices")] = changes{a}
}

// services follows the APIServices and maintains the routes.
type services struct{ a *Aggregator }

// Replace implements watchcache.Follower.
func (s services) Replace(all []scheme.Object) {
	have := map[schema.GroupVersion]bool{}
	for _, obj := range all {
		have[versionOf(obj.(*apiregistrationv1.APIService))] = true
		s.Put(obj)
	}
	for gv := range *s.a.remotes.Load() {
		if !have[gv] {
			s.a.route(gv, nil)
		}
	}
}

// Put implements watchcache.Follower.
func (s services) Put(obj scheme.Object) {
	service := obj.(*apiregistrationv1.APIService)
	available := apiregistration.IsAPIServiceConditionTrue(service, apiregistrationv1.Available)
	s.a.metrics.observe(service.Name, available)
	wake(s.a.local.changed)
	gv := versionOf(service)
	if service.Spec.Service == nil || gv.Group == apiregistrationv1.GroupName {
		s.a.route(gv, nil) // this server's own; nothing takes this group from it
		return
	}
	r := (*s.a.remotes.Load())[gv]
	if r == nil || r.uid != service.UID || !equality.Semantic.DeepEqual(r.spec, service.Spec) {
		r = newRemote(s.a, service)
		s.a.route(gv, r)
	}
	r.available.Store(available)
}

// Remove implements watchcache.Follower.
func (s services) Remove(_, name string) {
	s.a.metrics.forget(name)
	s.a.route(apiregistration.APIServiceNameToGroupVersion(name), nil)
	wake(s.a.local.changed)
}

// route sets what serves a group version; nil: this server.
func (a *Aggregator) route(gv schema.GroupVersion, r *remote) {
	a.mu.Lock()
	defer a.mu.Unlock()
	remotes := maps.Clone(*a.remotes.Load())
	if remotes[gv] == r {
		return
	}
	if remotes[gv] = r; r == nil {
		delete(remotes, gv)
	}
	a.remotes.Store(&remotes)
	wake(a.changed)
}

func versionOf(s *apiregistrationv1.APIService) schema.GroupVersion {
	return schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}
}

// changes follows Services or EndpointSlices. After their changes, the APIServices that
// refer to them are checked.
type changes struct{ a *Aggregator }

// Replace implements watchcache.Follower.
func (c changes) Replace([]scheme.Object) {
	for _, r := range *c.a.remotes.Load() {
		wake(r.again)
	}
}

// Put implements watchcache.Follower.
func (c changes) Put(obj scheme.Object) {
	name := obj.GetName()
	if service, ok := obj.GetLabels()[discoveryv1.LabelServiceName]; ok {
		name = service
	}
	c.Remove(obj.GetNamespace(), name)
}

// Remove implements watchcache.Follower. The name of an EndpointSlice begins with that
// of its Service, if a controller made it.
func (c changes) Remove(namespace, name string) {
	for _, r := range *c.a.remotes.Load() {
		if to := r.spec.Service; to.Namespace == namespace && strings.HasPrefix(name, to.Name) {
			wake(r.again)
		}
	}
}

// checkEvery is the longest time between two checks of an APIService.
const checkEvery = 30 * time.Second
