package endpoints

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
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

// Config is what an API is made of.
type Config struct {
	Scheme    *scheme.Scheme
	Store     storage.Store
	Feed      *watchcache.Feed // gets a cache for each kind; the caller runs it
	Kinds     []*registry.Kind
	Admission admission.Chain    // after the namespace lifecycle,
	Disabled  registry.PluginSet // unless that is one of these

	// MayCreate authorizes the request of ctx to create the object that it
	// updates or patches; nil: no such request may.
	MayCreate func(ctx context.Context) error

	// Followers are told of all changes of their resource.
	Followers map[schema.GroupResource]watchcache.Follower

	// OpenAPI returns the v3 document of "api/v1", "apis/apps/v1", nil if there
	// is none. Server-side apply reads the schemas from it.
	OpenAPI func(path string) []byte

	Now     func() time.Time // default time.Now
	Random  io.Reader        // of UIDs and generated names; default crypto/rand; must be safe for concurrent use
	Log     *slog.Logger
	Closing context.Context // ends when the server shuts down: watches end with it
	Observe Observer        // may be nil
}

// Observer is told what the metrics want to know.
type Observer interface {
	WatchEvent(gvk schema.GroupVersionKind, bytes int)
	WatchStarted(gvk schema.GroupVersionKind) (ended func())
}

// API serves the resources of all kinds below /api and /apis.
type API struct {
	Config
	resources map[schema.GroupVersionResource]*resource
	managed   *managedFields
}

// New builds the API and registers its caches with the feed.
func New(cfg Config) *API {
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
		cfg.Observe = nobody{}
	}
	a := &API{Config: cfg, resources: map[schema.GroupVersionResource]*resource{}}
	a.managed = newManagedFields(cfg.Scheme, cfg.OpenAPI)
	for _, k := range cfg.Kinds {
		a.resources[k.GVR()] = newResource(a, k)
	}
	if !cfg.Disabled.Has(registry.NamespaceLifecycle) {
		a.Admission.Mutate = append([]admission.Func{admission.NamespaceLifecycle(a.Namespace)}, cfg.Admission.Mutate...)
	}
	return a
}

type nobody struct{}

func (nobody) WatchEvent(schema.GroupVersionKind, int)           {}
func (nobody) WatchStarted(schema.GroupVersionKind) (end func()) { return func() {} }

// Namespace finds a namespace for the admission chain.
func (a *API) Namespace(ctx context.Context, name string, fresh bool) (*corev1.Namespace, error) {
	r := a.resources[corev1.SchemeGroupVersion.WithResource("namespaces")]
	if r == nil {
		return &corev1.Namespace{}, nil
	}
	read := r.cache.Latest
	if !fresh {
		read = func(ctx context.Context) (*watchcache.Snapshot, error) { return r.cache.AtLeast(ctx, 0) }
	}
	snap, err := read(ctx)
	if err != nil {
		return nil, err
	}
	e := snap.Get(r.key("", name))
	if e == nil {
		return nil, nil
	}
	return e.Object().(*corev1.Namespace), nil
}

// Pods lists a namespace's pods for the admission chain; the list may be
// slightly old, and its pods are not to be modified.
func (a *API) Pods(ctx context.Context, namespace string) ([]*corev1.Pod, error) {
	r := a.resources[corev1.SchemeGroupVersion.WithResource("pods")]
	if r == nil {
		return nil, nil
	}
	snap, err := r.cache.AtLeast(ctx, 0)
	if err != nil {
		return nil, err
	}
	var pods []*corev1.Pod
	snap.Ascend(r.scope(namespace), "", func(e *watchcache.Entry) bool {
		pods = append(pods, e.Object().(*corev1.Pod))
		return true
	})
	return pods, nil
}

// ServeHTTP answers a request for a resource. The request's context carries
// its request.Request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := a.serve(w, r); err != nil {
		status := wire.WriteError(w, r, err)
		if status.Code == http.StatusInternalServerError {
			a.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
		}
	}
}

func (a *API) serve(w http.ResponseWriter, r *http.Request) error {
	info := &request.From(r.Context()).Info
	c := &call{w: w, r: r, ctx: r.Context(), info: info, res: a.resources[info.GVR()]}
	if c.res == nil {
		return unknownResource(info)
	}
	if err := c.shape(); err != nil {
		return err
	}
	if c.res.Deprecated != "" {
		request.Warn(c.ctx, c.res.Deprecated)
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

// Serves says whether there are the resource and the subresource that a request
// names; one that names no subresource has it.
func (a *API) Serves(info *request.Info) (resource, subresource bool) {
	r := a.resources[info.GVR()]
	if r == nil {
		return false, false
	}
	return true, info.Subresource == "" || r.subresource(info.Subresource) != nil
}

// shape checks that the path fits the resource: with a namespace or without.
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

// namespaceItself says whether the path is that of a namespace, or of a
// subresource of one: of cluster-scoped objects, these alone are authorized in
// a namespace, their own.
func (c *call) namespaceItself() bool {
	return c.info.Resource == "namespaces" && c.info.Group == "" && c.info.Namespace == c.info.Name
}

type handler func(*call) error

// verbs are the handlers of what the path names: an object, a collection, or
// one of the four sorts of subresources.
func (c *call) verbs() map[string]handler {
	switch {
	case c.res.Review != nil:
		return reviewVerbs
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
	reviewVerbs              = map[string]handler{"create": (*call).review}
	partVerbs                = map[string]handler{"get": (*call).get, "update": (*call).update, "patch": (*call).patch}
	viewVerbs                = map[string]handler{"get": (*call).getView, "update": (*call).updateView, "patch": (*call).patchView}
	actVerbs                 = map[string]handler{"create": (*call).act}
)

// Verbs are what clients may do with a kind, in discovery's order.
func Verbs(k *registry.Kind) []string {
	if k.Review != nil {
		return []string{"create"}
	}
	if k.NoDeleteCollection {
		return []string{"create", "delete", "get", "list", "patch", "update", "watch"}
	}
	return []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
}

// SubresourceVerbs are what clients may do with a subresource, likewise.
func SubresourceVerbs(s *registry.Subresource) []string {
	switch {
	case s.Connect != nil:
		var verbs []string
		for _, m := range s.Methods {
			verbs = append(verbs, connectVerb(m))
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

func unknownResource(info *request.Info) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, info.Verb, schema.GroupResource{Group: info.Group, Resource: info.Resource}, info.Name, "", 0, false)
}

func (c *call) methodNotAllowed(verbs []string) error {
	methods := map[string]bool{}
	for _, v := range verbs {
		methods[verbMethod(v)] = true
	}
	c.w.Header().Set("Allow", strings.Join(slices.Sorted(maps.Keys(methods)), ", "))
	return apierrors.NewMethodNotSupported(c.res.group(), c.info.Verb)
}

func verbMethod(verb string) string {
	switch verb {
	case "create":
		return http.MethodPost
	case "update":
		return http.MethodPut
	case "patch":
		return http.MethodPatch
	case "delete", "deletecollection":
		return http.MethodDelete
	case "get", "list", "watch":
		return http.MethodGet
	}
	return strings.ToUpper(verb)
}
