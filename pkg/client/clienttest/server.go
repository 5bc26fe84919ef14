package clienttest

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"podium/pkg/client"
	"podium/pkg/scheme"
)

// Server is an http.RoundTripper that serves the API from memory. It is safe for
// concurrent use.
type Server struct {
	// Before may answer a request itself, with an error (a network failure) or a
	// response; a non-nil error of After drops the response of a completed request.
	// Both must be set before the first request and may be nil.
	Before func(*http.Request) (*http.Response, error)
	After  func(*http.Request) error
	// Fields returns fields for selectors, in addition to those that every kind has and
	// those of pods; nil: none. It is set before the first request.
	Fields func(obj scheme.Object) fields.Set

	scheme *scheme.Scheme

	mu       sync.Mutex
	revision int64
	objects  map[string]scheme.Object // by resource/namespace/name
	log      []change
	changed  chan struct{} // closed at each change
	epoch    int           // watches opened in an older epoch have ended
	requests []string
}

type change struct {
	revision int64
	resource string
	old, new scheme.Object // nil: did not exist, does not exist
}

// New returns a server without objects.
func New() *Server {
	return &Server{scheme: scheme.New(), objects: map[string]scheme.Object{}, changed: make(chan struct{})}
}

// Client returns a client of the server. It fails t on an error.
func (s *Server) Client(t testing.TB) *client.Client {
	t.Helper()
	c, err := client.New(s.scheme, client.Config{Servers: []string{"http://api"}, Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Break ends all watches, as a restart of the server does.
func (s *Server) Break() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	s.wake()
}

// Writes returns the write requests so far, each as "METHOD path".
func (s *Server) Writes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// target is the parsed path of a request.
type target struct {
	kind                         *scheme.Kind
	namespace, name, subresource string
}

func (t target) key() string { return t.kind.Resource + "/" + t.namespace + "/" + t.name }

func (s *Server) parse(path string) (target, error) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	group, version := "", ""
	switch {
	case len(parts) > 2 && parts[0] == "api":
		version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		group, version, parts = parts[1], parts[2], parts[3:]
	default:
		return target{}, fmt.Errorf("path %s", path)
	}
	t := target{}
	if parts[0] == "namespaces" && len(parts) > 2 {
		t.namespace, parts = parts[1], parts[2:]
	}
	for _, k := range s.scheme.Kinds() {
		if k.Group == group && k.Version == version && k.Resource == parts[0] {
			t.kind = k
		}
	}
	if t.kind == nil {
		return target{}, fmt.Errorf("no resource %s", parts[0])
	}
	if len(parts) > 1 {
		t.name = parts[1]
	}
	if len(parts) > 2 {
		t.subresource = parts[2]
	}
	return t, nil
}

// RoundTrip serves a request.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if s.Before != nil {
		if resp, err := s.Before(r); resp != nil || err != nil {
			return resp, err
		}
	}
	obj, err := s.serve(r)
	if s.After != nil {
		if lost := s.After(r); lost != nil {
			return nil, lost
		}
	}
	if err != nil {
		return s.failure(err), nil
	}
	if w, ok := obj.(*watcher); ok {
		return answer(http.StatusOK, scheme.Protobuf+";stream=watch", w), nil
	}
	return s.success(obj)
}

func (s *Server) success(obj any) (*http.Response, error) {
	body, ok := obj.([]byte)
	if !ok {
		var err error
		if body, err = s.scheme.Encode(obj.(runtime.Object), scheme.Protobuf); err != nil {
			return nil, err
		}
	}
	return answer(http.StatusOK, scheme.Protobuf, io.NopCloser(bytes.NewReader(body))), nil
}

func (s *Server) failure(err error) *http.Response {
	status, ok := err.(*apierrors.StatusError)
	if !ok {
		status = apierrors.NewBadRequest(err.Error())
	}
	body, err := s.scheme.Encode(&status.ErrStatus, scheme.Protobuf)
	if err != nil {
		panic(err) // a Status always has a protobuf form
	}
	return answer(int(status.ErrStatus.Code), scheme.Protobuf, io.NopCloser(bytes.NewReader(body)))
}

func answer(code int, media string, body io.ReadCloser) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {media}}, Body: body, ContentLength: -1,
	}
}

func (s *Server) serve(r *http.Request) (any, error) {
	t, err := s.parse(r.URL.Path)
	if err != nil {
		return nil, err
	}
	var body []byte
	if r.Body != nil {
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method != http.MethodGet {
		s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	}
	switch {
	case r.Method == http.MethodGet && t.name == "":
		return s.collection(r, t)
	case r.Method == http.MethodGet:
		return s.get(t)
	case r.Method == http.MethodPost && t.subresource == "binding":
		return s.bind(t, body)
	case r.Method == http.MethodPost && t.subresource == "":
		return s.create(t, body)
	case r.Method == http.MethodPut:
		return s.update(t, body)
	case r.Method == http.MethodPatch:
		return s.patch(t, types.PatchType(r.Header.Get("Content-Type")), body)
	case r.Method == http.MethodDelete:
		return s.delete(t)
	}
	return nil, apierrors.NewMethodNotSupported(t.kind.GVR().GroupResource(), r.Method)
}

func (s *Server) get(t target) (scheme.Object, error) {
	obj := s.objects[t.key()]
	if obj == nil {
		return nil, apierrors.NewNotFound(t.kind.GVR().GroupResource(), t.name)
	}
	return obj, nil
}

func (s *Server) decode(body []byte) (scheme.Object, error) {
	obj, _, err := s.scheme.Decode(body, scheme.Protobuf, nil)
	if err != nil {
		return nil, err
	}
	return obj.(scheme.Object), nil
}

func (s *Server) create(t target, body []byte) (any, error) {
	obj, err := s.decode(body)
	if err != nil {
		return nil, err
	}
	if obj.GetName() == "" && obj.GetGenerateName() != "" {
		obj.SetName(obj.GetGenerateName() + strconv.FormatInt(s.revision, 36))
	}
	obj.SetNamespace(t.namespace)
	t.name = obj.GetName()
	if s.objects[t.key()] != nil {
		return nil, apierrors.NewAlreadyExists(t.kind.GVR().GroupResource(), t.name)
	}
	if obj.GetUID() == "" {
		obj.SetUID(types.UID(fmt.Sprintf("uid-%d", s.revision+1)))
	}
	obj.SetCreationTimestamp(metav1.NewTime(time.Now()))
	obj.SetGeneration(1)
	return s.store(t, nil, obj), nil
}

func (s *Server) update(t target, body []byte) (any, error) {
	obj, err := s.decode(body)
	if err != nil {
		return nil, err
	}
	return s.replace(t, obj)
}

func (s *Server) replace(t target, obj scheme.Object) (any, error) {
	old, err := s.get(t)
	if err != nil {
		return nil, err
	}
	if rv := obj.GetResourceVersion(); rv != "" && rv != old.GetResourceVersion() || obj.GetUID() != "" && obj.GetUID() != old.GetUID() {
		return nil, apierrors.NewConflict(t.kind.GVR().GroupResource(), t.name,
			fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again"))
	}
	obj.SetUID(old.GetUID())
	obj.SetCreationTimestamp(old.GetCreationTimestamp())
	return s.store(t, old, obj), nil
}

func (s *Server) delete(t target) (any, error) {
	old, err := s.get(t)
	if err != nil {
		return nil, err
	}
	s.store(t, old, nil)
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

// bind implements the binding subresource of pods.
func (s *Server) bind(t target, body []byte) (any, error) {
	obj, _, err := s.scheme.Decode(body, scheme.Protobuf, nil)
	if err != nil {
		return nil, err
	}
	old, err := s.get(t)
	if err != nil {
		return nil, err
	}
	pod, binding := old.DeepCopyObject().(*corev1.Pod), obj.(*corev1.Binding)
	if pod.Spec.NodeName != "" || binding.UID != "" && binding.UID != pod.UID {
		return nil, apierrors.NewConflict(corev1.Resource("pods/binding"), t.name,
			fmt.Errorf("pod %s is already assigned to node %q", t.name, pod.Spec.NodeName))
	}
	pod.Spec.NodeName = binding.Target.Name
	s.store(t, old, pod)
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

// store records a change as the next revision. new is nil for a deletion.
func (s *Server) store(t target, old, new scheme.Object) scheme.Object {
	s.revision++
	if new != nil {
		new.SetResourceVersion(strconv.FormatInt(s.revision, 10))
		s.objects[t.key()] = new
	} else {
		delete(s.objects, t.key())
	}
	s.log = append(s.log, change{s.revision, t.kind.Resource, old, new})
	s.wake()
	return new
}

// selection is the parsed selectors of a list or watch.
type selection struct {
	resource, namespace string
	labels              labels.Selector
	fields              fields.Selector
	more                func(scheme.Object) fields.Set
}

func (s *Server) selection(r *http.Request, t target) (selection, error) {
	q := r.URL.Query()
	l, err := labels.Parse(q.Get("labelSelector"))
	if err != nil {
		return selection{}, err
	}
	f, err := fields.ParseSelector(q.Get("fieldSelector"))
	return selection{t.kind.Resource, t.namespace, l, f, s.Fields}, err
}

func (sel selection) matches(obj scheme.Object) bool {
	if obj == nil || sel.namespace != "" && obj.GetNamespace() != sel.namespace {
		return false
	}
	set := fields.Set{"metadata.name": obj.GetName(), "metadata.namespace": obj.GetNamespace()}
	if pod, ok := obj.(*corev1.Pod); ok {
		set["spec.nodeName"], set["status.phase"] = pod.Spec.NodeName, string(pod.Status.Phase)
	}
	if sel.more != nil {
		maps.Copy(set, sel.more(obj))
	}
	return sel.labels.Matches(labels.Set(obj.GetLabels())) && sel.fields.Matches(set)
}

func (s *Server) collection(r *http.Request, t target) (any, error) {
	sel, err := s.selection(r, t)
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	if q.Get("watch") != "true" {
		return s.list(t, sel)
	}
	w := &watcher{s: s, ctx: r.Context(), kind: t.kind, sel: sel, epoch: s.epoch}
	if q.Get("sendInitialEvents") == "true" {
		for _, obj := range s.selected(sel) {
			w.add(watch.Added, obj)
		}
		w.bookmark(s.revision)
		w.seen = s.revision
		return w, nil
	}
	w.seen, err = strconv.ParseInt(q.Get("resourceVersion"), 10, 64)
	return w, err
}

func (s *Server) selected(sel selection) []scheme.Object {
	var keys []string
	for key, obj := range s.objects {
		if strings.HasPrefix(key, sel.resource+"/") && sel.matches(obj) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	out := make([]scheme.Object, len(keys))
	for i, key := range keys {
		out[i] = s.objects[key]
	}
	return out
}
