package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"podium/pkg/client/access"
	"podium/pkg/metricsserver/usage"
)

// Access authenticates and authorizes clients; *access.Delegate implements it.
type Access interface {
	Authenticate(r *http.Request) (*access.User, error)
	MayResource(ctx context.Context, u *access.User, what authorizationv1.ResourceAttributes) (bool, error)
	MayPath(ctx context.Context, u *access.User, verb, path string) (bool, error)
}

// Usage returns what nodes and pods use; *usage.Store implements it.
type Usage interface {
	// Node returns false if the usage is not known.
	Node(name string) (usage.Usage, bool)
	// Pod returns the usage by container, nil if it is not known.
	Pod(node string, pod types.NamespacedName) map[string]usage.Usage
}

// Server serves the API. All fields are needed.
type Server struct {
	Nodes  Nodes
	Pods   Pods
	Usage  Usage
	Access Access
	Pages  http.Handler           // /metrics and profiles, to authorized users
	Open   func(path string) bool // reports whether a path of Pages needs no credentials
	Log    *slog.Logger
	Now    func() time.Time
}

const (
	root = "/apis/metrics.k8s.io/v1beta1"
	// maxQuery is the maximum length of a query in bytes.
	maxQuery = 64 << 10
)

// The names of the objects in errors and in the discovery documents.
var (
	nodeMetrics = schema.GroupResource{Group: metricsv1beta1.GroupName, Resource: "nodemetrics"}
	podMetrics  = schema.GroupResource{Group: metricsv1beta1.GroupName, Resource: "podmetrics"}
)

// Handler returns the handler of all requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+root+"/nodes", s.resource("list", "nodes", s.listNodes))
	mux.Handle("GET "+root+"/nodes/{name}", s.resource("get", "nodes", s.getNode))
	mux.Handle("GET "+root+"/pods", s.resource("list", "pods", s.listPods))
	mux.Handle("GET "+root+"/namespaces/{namespace}/pods", s.resource("list", "pods", s.listPods))
	mux.Handle("GET "+root+"/namespaces/{namespace}/pods/{name}", s.resource("get", "pods", s.getPod))
	for path, document := range documents() {
		mux.Handle("GET "+path, s.page(document))
	}
	mux.Handle(root+"/", s.page(http.HandlerFunc(s.notServed)))
	mux.Handle("/", s.page(s.Pages))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Open(r.URL.Path) {
			s.Pages.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// resource returns the handler of an operation on a resource of this API. What asks for a
// watch is refused.
func (s *Server) resource(verb, resource string, h func(w http.ResponseWriter, r *http.Request) error) http.Handler {
	asks := func(r *http.Request) string {
		if verb == "list" && watches(r) {
			return "watch"
		}
		return verb
	}
	serve := func(w http.ResponseWriter, r *http.Request) error {
		if verb := asks(r); verb == "watch" {
			return apierrors.NewMethodNotSupported(schema.GroupResource{Group: metricsv1beta1.GroupName, Resource: resource}, verb)
		}
		return h(w, r)
	}
	return s.guard(serve, func(r *http.Request, u *access.User) (bool, string, error) {
		what := authorizationv1.ResourceAttributes{
			Verb: asks(r), Group: metricsv1beta1.GroupName, Version: "v1beta1", Resource: resource,
			Namespace: r.PathValue("namespace"), Name: r.PathValue("name"),
		}
		ok, err := s.Access.MayResource(r.Context(), u, what)
		return ok, fmt.Sprintf("cannot %s resource %q in API group %q%s", what.Verb, resource, what.Group, scope(what.Namespace)), err
	})
}

// watches reports whether a request for a list asks for a watch.
func watches(r *http.Request) bool {
	watch, err := strconv.ParseBool(r.URL.Query().Get("watch"))
	return err == nil && watch
}

func scope(namespace string) string {
	if namespace == "" {
		return " at the cluster scope"
	}
	return fmt.Sprintf(" in the namespace %q", namespace)
}

// page returns the handler of a path that is not of a resource.
func (s *Server) page(h http.Handler) http.Handler {
	serve := func(w http.ResponseWriter, r *http.Request) error {
		h.ServeHTTP(w, r)
		return nil
	}
	return s.guard(serve, func(r *http.Request, u *access.User) (bool, string, error) {
		verb := strings.ToLower(r.Method)
		ok, err := s.Access.MayPath(r.Context(), u, verb, r.URL.Path)
		return ok, fmt.Sprintf("cannot %s path %q", verb, r.URL.Path), err
	})
}

// notServed answers requests below the path of the API that no operation is for.
func (s *Server) notServed(w http.ResponseWriter, r *http.Request) {
	code := http.StatusNotFound
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		code = http.StatusMethodNotAllowed
	}
	s.fail(w, r, apierrors.NewGenericServerResponse(code, strings.ToLower(r.Method), schema.GroupResource{}, "", "", 0, false))
}

// guard authenticates and authorizes a request. may also returns what it has asked.
func (s *Server) guard(h func(http.ResponseWriter, *http.Request) error, may func(*http.Request, *access.User) (bool, string, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.admit(r, may); err != nil {
			s.fail(w, r, err)
		} else if err := h(w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

func (s *Server) admit(r *http.Request, may func(*http.Request, *access.User) (bool, string, error)) error {
	if len(r.URL.RawQuery) > maxQuery {
		return apierrors.NewRequestEntityTooLargeError("the query is too long")
	}
	user, err := s.Access.Authenticate(r)
	if errors.Is(err, access.ErrUnknown) {
		s.Log.Debug("authentication failed", "path", r.URL.Path, "from", r.RemoteAddr, "err", err)
		return apierrors.NewUnauthorized("Unauthorized")
	}
	if err != nil {
		return fmt.Errorf("authenticate: %w", err)
	}
	ok, what, err := may(r, user)
	if err != nil {
		return fmt.Errorf("authorize: %w", err)
	}
	if !ok {
		//lint:ignore ST1005 the text of API servers
		return apierrors.NewForbidden(schema.GroupResource{}, "", fmt.Errorf("User %q %s", user.Name, what))
	}
	return nil
}

func (s *Server) listNodes(w http.ResponseWriter, r *http.Request) error {
	selected, err := selects(r.URL.Query(), false)
	if err != nil {
		return err
	}
	out := &metricsv1beta1.NodeMetricsList{Items: []metricsv1beta1.NodeMetrics{}}
	for _, n := range s.Nodes.List() {
		if !selected.matches(n) {
			continue
		}
		if m := s.nodeMetrics(n); m != nil {
			out.Items = append(out.Items, *m)
		}
	}
	return s.write(w, r, out, "NodeMetricsList")
}

func (s *Server) getNode(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	if n, ok := s.Nodes.Get("", name); ok {
		if m := s.nodeMetrics(n); m != nil {
			return s.write(w, r, m, "NodeMetrics")
		}
	}
	return apierrors.NewNotFound(nodeMetrics, name)
}

func (s *Server) listPods(w http.ResponseWriter, r *http.Request) error {
	selected, err := selects(r.URL.Query(), true)
	if err != nil {
		return err
	}
	var pods []*corev1.Pod
	if namespace := r.PathValue("namespace"); namespace != "" {
		pods = s.Pods.In(namespace)
	} else {
		pods = s.Pods.List()
	}
	out := &metricsv1beta1.PodMetricsList{Items: []metricsv1beta1.PodMetrics{}}
	for _, p := range pods {
		if !selected.matches(p) {
			continue
		}
		if m := s.podMetrics(p); m != nil {
			out.Items = append(out.Items, *m)
		}
	}
	return s.write(w, r, out, "PodMetricsList")
}

func (s *Server) getPod(w http.ResponseWriter, r *http.Request) error {
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	if p, ok := s.Pods.Get(namespace, name); ok {
		if m := s.podMetrics(p); m != nil {
			return s.write(w, r, m, "PodMetrics")
		}
	}
	return apierrors.NewNotFound(podMetrics, namespace+"/"+name)
}
