package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheme"
)

// api is an API server in memory with what a proxy uses: list, watch from a revision on,
// create, get, update and delete. It is a RoundTripper, so that all traffic stays in
// the test's bubble.
type api struct {
	s *scheme.Scheme

	mu       sync.Mutex
	revision int
	objects  map[string]scheme.Object // by path
	history  []event
	watches  map[*watch]bool
	down     bool
}

// event is a change, as watches are told of it.
type event struct {
	revision int
	path     string
	line     []byte
}

type watch struct {
	prefix string
	out    *io.PipeWriter
	events chan []byte
}

func newAPI() *api {
	return &api{s: scheme.New(), objects: map[string]scheme.Object{}, watches: map[*watch]bool{}}
}

func (a *api) path(obj scheme.Object) string {
	gvk, err := a.s.GVKOf(obj)
	if err != nil {
		panic(err)
	}
	k := a.s.ByKind(gvk)
	return k.Resource + "/" + obj.GetNamespace() + "/" + obj.GetName()
}

// put stores an object and notifies the watches.
func (a *api) put(obj scheme.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.putLocked(obj)
}

func (a *api) putLocked(obj scheme.Object) {
	path, verb := a.path(obj), "MODIFIED"
	if _, had := a.objects[path]; !had {
		verb = "ADDED"
	}
	a.revision++
	obj = obj.DeepCopyObject().(scheme.Object)
	obj.SetResourceVersion(fmt.Sprint(a.revision))
	if obj.GetUID() == "" {
		obj.SetUID(types.UID(path))
	}
	a.objects[path] = obj
	a.tell(verb, path, obj)
}

// remove deletes an object and notifies the watches.
func (a *api) remove(obj scheme.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revision++
	path := a.path(obj)
	gone := a.objects[path].DeepCopyObject().(scheme.Object)
	gone.SetResourceVersion(fmt.Sprint(a.revision))
	delete(a.objects, path)
	a.tell("DELETED", path, gone)
}

func (a *api) get(path string) scheme.Object {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.objects[path]
}

// setDown makes every request fail, or succeed again.
func (a *api) setDown(down bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = down
}

func (a *api) tell(verb, path string, obj scheme.Object) {
	data, err := a.s.Encode(obj, scheme.JSON)
	if err != nil {
		panic(err)
	}
	e := event{a.revision, path, fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", verb, data)}
	a.history = append(a.history, e)
	for w := range a.watches {
		w.tell(e)
	}
}

func (w *watch) tell(e event) {
	if strings.HasPrefix(e.path, w.prefix) {
		w.events <- e.line
	}
}

// RoundTrip implements http.RoundTripper.
func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down {
		return nil, fmt.Errorf("%s: connection refused", r.URL)
	}
	kind, path := a.find(r.URL.Path)
	switch {
	case kind == nil:
		return a.status(r, 404, "NotFound")
	case r.URL.Query().Get("watch") != "":
		return a.watch(r, path)
	case r.Method == "GET" && strings.Count(path, "/") < 2:
		return a.list(r, kind, path)
	case r.Method == "GET":
		if obj := a.objects[path]; obj != nil {
			return a.answer(r, 200, obj)
		}
		return a.status(r, 404, "NotFound")
	case r.Method == "DELETE":
		delete(a.objects, path)
		return a.status(r, 200, "")
	}
	return a.write(r, kind)
}

// find splits /api/v1/namespaces/NS/services/NAME into a kind and services/NS/NAME.
func (a *api) find(path string) (*scheme.Kind, string) {
	words := strings.Split(strings.Trim(path, "/"), "/")
	gv := schema.GroupVersion{Version: "v1"}
	if words[0] == "apis" {
		gv = schema.GroupVersion{Group: words[1], Version: words[2]}
		words = words[1:]
	}
	words = words[2:]
	namespace := ""
	if len(words) > 2 && words[0] == "namespaces" {
		namespace, words = words[1], words[2:]
	}
	kind := a.s.ByResource(gv.WithResource(words[0]))
	out := words[0] + "/"
	if namespace != "" || len(words) > 1 {
		out += namespace + "/"
	}
	return kind, out + strings.Join(words[1:], "/")
}

func (a *api) list(r *http.Request, kind *scheme.Kind, prefix string) (*http.Response, error) {
	var items []string
	for path, obj := range a.objects {
		if strings.HasPrefix(path, prefix) {
			data, _ := a.s.Encode(obj, scheme.JSON)
			items = append(items, string(data))
		}
	}
	return respond(r, 200, fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d"},"items":[%s]}`,
		kind.Kind+"List", kind.GroupVersion().String(), a.revision, strings.Join(items, ","))), nil
}

func (a *api) watch(r *http.Request, prefix string) (*http.Response, error) {
	if r.URL.Query().Get("sendInitialEvents") != "" {
		return a.status(r, 422, "Invalid") // as a server without watch-list support
	}
	in, out := io.Pipe()
	since, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		return a.status(r, 400, "BadRequest")
	}
	first, _ := slices.BinarySearchFunc(a.history, since+1, func(e event, revision int) int { return e.revision - revision })
	missed := a.history[first:]
	w := &watch{prefix: prefix, out: out, events: make(chan []byte, len(missed)+1000)}
	for _, e := range missed {
		w.tell(e)
	}
	a.watches[w] = true
	go func() {
		defer func() {
			a.mu.Lock()
			delete(a.watches, w)
			a.mu.Unlock()
			out.Close()
		}()
		for {
			select {
			case <-r.Context().Done():
				return
			case e := <-w.events:
				if _, err := out.Write(e); err != nil {
					return
				}
			}
		}
	}()
	resp := respond(r, 200, "")
	resp.Body = in
	return resp, nil
}

func (a *api) write(r *http.Request, kind *scheme.Kind) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	decoded, _, err := a.s.Decode(body, r.Header.Get("Content-Type"), &kind.GroupVersionKind)
	if err != nil {
		return nil, err
	}
	obj := decoded.(scheme.Object)
	old := a.objects[a.path(obj)]
	switch {
	case r.Method == "POST" && old != nil:
		return a.status(r, 409, "AlreadyExists")
	case r.Method == "PUT" && old == nil:
		return a.status(r, 404, "NotFound")
	case r.Method == "PUT" && old.GetResourceVersion() != obj.GetResourceVersion():
		return a.status(r, 409, "Conflict")
	}
	a.putLocked(obj)
	return a.answer(r, 200, a.objects[a.path(obj)])
}

func (a *api) answer(r *http.Request, code int, obj scheme.Object) (*http.Response, error) {
	data, err := a.s.Encode(obj, scheme.JSON)
	return respond(r, code, string(data)), err
}

func (a *api) status(r *http.Request, code int, reason string) (*http.Response, error) {
	state := "Failure"
	if code < 300 {
		state = "Success"
	}
	return respond(r, code, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":%q,"reason":%q,"code":%d}`, state, reason, code)), nil
}

func respond(r *http.Request, code int, body string) *http.Response {
	return &http.Response{
		StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {scheme.JSON}},
		Body:   io.NopCloser(bytes.NewReader([]byte(body))),
	}
}
