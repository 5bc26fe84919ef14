package endpoints

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
	"podium/pkg/storage"
	"podium/pkg/storage/watchcache"
)

// Config configures an API. Scheme, Store, Feed and Log are required.
type Config struct {
	Scheme    *scheme.Scheme
	Store     storage.Store
	Feed      *watchcache.Feed // gets a cache for each stored kind; the caller runs it
	Kinds     []*registry.Kind // served from the start; see Add for later ones
	Admission admission.Chain  // may be set later, before the first request

	// Changed is called with the kinds that are served after New and after each Add
	// and Remove, one call at a time. It must not call Add or Remove. May be nil.
	Changed func([]*registry.Kind)

	// Await blocks until the kinds that are defined by now are served, or gives up. A
	// request for an unknown resource calls it and then looks again, so that a client
	// finds a kind on each API server once one says that it is established. May be nil.
	Await func(ctx context.Context)

	// MayCreate authorizes the verb create for the request of ctx, which is an
	// update or a patch of an object that does not exist. If it is nil, such
	// requests fail with an internal error.
	MayCreate func(ctx context.Context) error

	// Followers receive all changes of their resource from its watch cache.
	Followers map[schema.GroupResource]watchcache.Follower

	// OpenAPI returns the OpenAPI v3 document of a path such as "api/v1" or
	// "apis/apps/v1", or nil if the path has no document. Server-side apply reads
	// the schemas from it. May be nil.
	OpenAPI func(path string) []byte

	Now     func() time.Time // default time.Now
	Random  io.Reader        // of UIDs and generated names; default crypto/rand; must be safe for concurrent use
	Log     *slog.Logger
	Closing context.Context // ends when the server shuts down, which ends all watches; default: never
	Observe Observer        // may be nil
}

// Observer receives the watch metrics. Its methods are called concurrently and must
// not block.
type Observer interface {
	WatchEvent(gvk schema.GroupVersionKind, bytes int)
	WatchStarted(gvk schema.GroupVersionKind) (ended func())
}

// API serves the resources of all kinds below /api and /apis. Its methods are safe
// for concurrent use.
type API struct {
	Config
	changing sync.Mutex // serializes Add and Remove
	table    atomic.Pointer[table]
	schemas  *schemas
}

// New builds an API, registers a cache with the feed for each kind of cfg, and then
// calls cfg.Changed once.
func New(cfg Config) (*API, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Random == nil {
		cfg.Random = rand.Reader
	}
	if cfg.Closing == nil {
		cfg.Closing = context.Background()
	}
	if cfg.Observe == nil {
		cfg.Observe = noObserver{}
	}
	a := &API{Config: cfg, schemas: newSchemas(cfg.OpenAPI)}
	a.table.Store(&table{versions: map[schema.GroupVersionResource]*version{}})
	a.Changed = nil // report once, after the last kind is added
	if err := a.Change(context.Background(), cfg.Kinds, nil); err != nil {
		return nil, err
	}
	a.Changed = cfg.Changed
	a.report()
	return a, nil
}

type noObserver struct{}

func (noObserver) WatchEvent(schema.GroupVersionKind, int)           {}
func (noObserver) WatchStarted(schema.GroupVersionKind) (end func()) { return func() {} }

// ServeHTTP answers a request for a resource. The context of the request must carry
// a request.Request. Errors become a Status; internal ones are also logged.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := a.serve(w, r); err != nil {
		status := wire.WriteError(w, r, err)
		if status.Code == http.StatusInternalServerError {
			a.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
		}
	}
}

// serve answers a request. It repeats a read whose kind was replaced or
// removed during the request.
func (a *API) serve(w http.ResponseWriter, r *http.Request) error {
	for {
		err := a.serveOnce(w, r)
		switch {
		case !errors.Is(err, watchcache.ErrRemoved):
			return err
		case r.Method != http.MethodGet:
			return apierrors.NewServiceUnavailable("the resource has changed, try again")
		}
	}
}

func (a *API) serveOnce(w http.ResponseWriter, r *http.Request) error {
	info := &request.From(r.Context()).Info
	c := &call{w: w, r: r, ctx: r.Context(), info: info, res: a.resource(info.GVR())}
	if c.res == nil && a.Await != nil {
		a.Await(c.ctx)
		c.res = a.resource(info.GVR())
	}
	if c.res == nil {
		return unknownResource(info)
	}
	if err := c.shape(); err != nil {
		return err
	}
	if c.res.rules.Deprecated != "" {
		request.Warn(c.ctx, c.res.rules.Deprecated)
	}
	if info.Subresource != "" {
		c.sub = c.res.subresource(info.Subresource)
		if c.sub == nil {
			return unknownResource(info)
		}
	}
	verbs := c.verbs()
	handle := verbs[info.Verb]
	if handle == nil {
		return c.methodNotAllowed(slices.Collect(maps.Keys(verbs)))
	}
	return handle(c)
}

// Serves reports whether the resource and the subresource of a request exist. A
// request without a subresource counts as having an existing one.
func (a *API) Serves(info *request.Info) (resource, subresource bool) {
	r := a.resource(info.GVR())
	if r == nil {
		return false, false
	}
	return true, info.Subresource == "" || r.subresource(info.Subresource) != nil
}

// shape checks that the path has a namespace if and only if the resource is
// namespaced, and returns a 404 otherwise.
func (c *call) shape() error {
	namespaced := c.res.Namespaced
	switch {
	case namespaced && c.info.Namespace == "" && (c.info.Subresource != "" || c.info.Verb == "get" || c.info.Verb == "update" || c.info.Verb == "patch" || c.info.Verb == "delete"):
		return unknownResource(c.info)
	case !namespaced && c.info.Namespace != "" && !c.namespaceItself():
		return unknownResource(c.info)
	}
	return nil
}

// namespaceItself reports whether the path is that of a Namespace or of one of its
// subresources. These are the only cluster-scoped objects that are authorized in a
// namespace: their own.
func (c *call) namespaceItself() bool {
	return c.info.Resource == "namespaces" && c.info.Group == "" && c.info.Namespace == c.info.Name
}

type handler func(*call) error

// verbs returns the handlers for the target of the path, by verb. The target is an
// object, a collection, or one of the four sorts of subresources.
func (c *call) verbs() map[string]handler {
	switch {
	case c.res.Review != nil:
		return reviewVerbs
	case c.res.Compute != nil:
		return computedVerbs
	case c.sub == nil && c.info.Name != "" && c.info.Verb != "list" && c.info.Verb != "watch" && c.info.Verb != "deletecollection":
		return objectVerbs
	case c.sub == nil && c.res.Namespaced && c.info.Namespace == "":
		return everywhereVerbs
	case c.sub == nil && c.res.NoDeleteCollection:
		return collectionButDeleteVerbs
	case c.sub == nil:
		return collectionVerbs
	case c.sub.Connect != nil:
		return c.connectVerbs()
	case c.sub.Act != nil:
		return actVerbs
	case c.sub.View != nil:
		return viewVerbs
	}
	return partVerbs
}

var (
	objectVerbs              = map[string]handler{"get": (*call).get, "update": (*call).update, "patch": (*call).patch, "delete": (*call).delete}
	collectionVerbs          = map[string]handler{"list": (*call).list, "watch": (*call).watch, "create": (*call).create, "deletecollection": (*call).deleteCollection}
	collectionButDeleteVerbs = map[string]handler{"list": (*call).list, "watch": (*call).watch, "create": (*call).create}
	everywhereVerbs          = map[string]handler{"list": (*call).list, "watch": (*call).watch}
	computedVerbs            = map[string]handler{"get": (*call).getComputed, "list": (*call).listComputed}
	reviewVerbs              = map[string]handler{"create": (*call).review}
	partVerbs                = map[string]handler{"get": (*call).get, "update": (*call).update, "patch": (*call).patch}
	viewVerbs                = map[string]handler{"get": (*call).getView, "update": (*call).updateView, "patch": (*call).patchView}
	actVerbs                 = map[string]handler{"create": (*call).act}
)

// Verbs returns the verbs that a kind supports, in the order of discovery.
func Verbs(k *registry.Kind) []string {
	if k.Review != nil {
		return []string{"create"}
	}
	if k.Compute != nil {
		return []string{"get", "list"}
	}
	if k.NoDeleteCollection {
		return []string{"create", "delete", "get", "list", "patch", "update", "watch"}
	}
	return []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
}

// SubresourceVerbs returns the verbs that a subresource supports, in the order of
// discovery.
func SubresourceVerbs(s *registry.Subresource) []string {
	switch {
	case s.Connect != nil:
		var verbs []string
		for _, m := range s.Methods {
			verbs = append(verbs, request.ResourceVerb(m))
		}
		slices.Sort(verbs)
		return slices.Compact(verbs)
	case s.Act != nil:
		return []string{"create"}
	case s.View == nil && s.PreparePart == nil:
		return nil
	}
	return []string{"get", "patch", "update"}
}

// unknownResource returns the 404 for a path that names no resource.
func unknownResource(info *request.Info) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, info.Verb, schema.GroupResource{Group: info.Group, Resource: info.Resource}, info.Name, "", 0, false)
}

// methodNotAllowed returns the 405 and sets the Allow header to the methods of
// verbs.
func (c *call) methodNotAllowed(verbs []string) error {
	methods := map[string]bool{}
	for _, v := range verbs {
		methods[request.Method(v)] = true
	}
	c.w.Header().Set("Allow", strings.Join(slices.Sorted(maps.Keys(methods)), ", "))
	return apierrors.NewMethodNotSupported(c.res.group(), c.info.Verb)
}
