package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"podium/pkg/client/access"
	"podium/pkg/metricsserver/usage"
	"podium/pkg/scheme"
)

var now = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// objects are nodes or pods by namespace and name, in order.
type objects[T metav1.Object] []T

func (o objects[T]) List() []T { return o }

func (o objects[T]) In(namespace string) (out []T) {
	for _, obj := range o {
		if obj.GetNamespace() == namespace {
			out = append(out, obj)
		}
	}
	return out
}

func (o objects[T]) Get(namespace, name string) (none T, ok bool) {
	for _, obj := range o {
		if obj.GetNamespace() == namespace && obj.GetName() == name {
			return obj, true
		}
	}
	return none, false
}

// fixed is the usage of everything but the node and the pod named new.
type fixed struct{}

func (fixed) Node(name string) (usage.Usage, bool) {
	return usage.Usage{Time: now, Window: 15200 * time.Millisecond, CPU: 1234567890, Memory: 3 << 20}, name != "new"
}

func (fixed) Pod(node string, pod types.NamespacedName) map[string]usage.Usage {
	if pod.Name == "new" {
		return nil
	}
	return map[string]usage.Usage{
		"main":   {Time: now.Add(2 * time.Second), Window: 15 * time.Second, CPU: 500e6, Memory: 1 << 20},
		"helper": {Time: now.Add(time.Second), Window: 14 * time.Second, CPU: 250e6, Memory: 1 << 19},
	}
}

// clients may do what their name says.
type clients struct{ asked *string }

func (clients) Authenticate(r *http.Request) (*access.User, error) {
	switch name := r.Header.Get("X-User"); name {
	case "":
		return nil, access.ErrUnknown
	case "unlucky":
		return nil, errors.New("the API server does not answer")
	default:
		return &access.User{Name: name}, nil
	}
}

func (c clients) MayResource(_ context.Context, u *access.User, what authorizationv1.ResourceAttributes) (bool, error) {
	*c.asked = strings.Join([]string{what.Verb, what.Group, what.Version, what.Resource, what.Namespace, what.Name}, " ")
	return u.Name == "admin", nil
}

func (c clients) MayPath(_ context.Context, u *access.User, verb, path string) (bool, error) {
	*c.asked = verb + " " + path
	return u.Name == "admin", nil
}

// newHandler returns the handler, and what it asked last of who may do what.
func newHandler() (http.Handler, *string) {
	object := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"is": name}}
	}
	asked := new(string)
	s := &Server{
		Nodes: objects[*corev1.Node]{{ObjectMeta: object("", "a")}, {ObjectMeta: object("", "new")}},
		Pods:  objects[*corev1.Pod]{{ObjectMeta: object("db", "one")}, {ObjectMeta: object("web", "new")}, {ObjectMeta: object("web", "one")}},
		Usage: fixed{}, Access: clients{asked}, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now },
		Pages: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("page " + r.URL.Path)) }),
		Open:  func(path string) bool { return path == "/healthz" },
	}
	return s.Handler(), asked
}

func ask(h http.Handler, user, method, path, accept string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set("X-User", user)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const (
	nodeA  = `{"metadata":{"name":"a","creationTimestamp":"2026-01-02T15:04:05Z","labels":{"is":"a"}},"timestamp":"2026-01-02T15:04:05Z","window":"15.2s","usage":{"cpu":"1234567890n","memory":"3Mi"}}`
	used   = `"timestamp":"2026-01-02T15:04:06Z","window":"14s","containers":[{"name":"helper","usage":{"cpu":"250m","memory":"512Ki"}},{"name":"main","usage":{"cpu":"500m","memory":"1Mi"}}]}`
	webOne = `{"metadata":{"name":"one","namespace":"web","creationTimestamp":"2026-01-02T15:04:05Z","labels":{"is":"one"}},` + used
	dbOne  = `{"metadata":{"name":"one","namespace":"db","creationTimestamp":"2026-01-02T15:04:05Z","labels":{"is":"one"}},` + used
)

// typed adds a kind to the JSON of an object.
func typed(kind, object string) string {
	return `{"kind":"` + kind + `","apiVersion":"metrics.k8s.io/v1beta1",` + strings.TrimPrefix(object, "{")
}

func list(kind string, items ...string) string {
	return `{"kind":"` + kind + `","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[` + strings.Join(items, ",") + `]}`
}

func status(code, reason, message string) string {
	return code + " " + reason + ": " + message
}

// TestWire checks the answers byte by byte: autoscalers read them.
func TestWire(t *testing.T) {
	const root = "/apis/metrics.k8s.io/v1beta1"
	for name, row := range map[string]struct {
		user, method, path, accept string
		want, asked                string // a Status in short form
	}{
		"Nodes":        {"admin", "GET", root + "/nodes", "", list("NodeMetricsList", nodeA), "list metrics.k8s.io v1beta1 nodes  "},
		"Node":         {"admin", "GET", root + "/nodes/a", "application/json", typed("NodeMetrics", nodeA), "get metrics.k8s.io v1beta1 nodes  a"},
		"NewNode":      {"admin", "GET", root + "/nodes/new", "", status("404", "NotFound", `nodemetrics.metrics.k8s.io "new" not found`), "get metrics.k8s.io v1beta1 nodes  new"},
		"Pods":         {"admin", "GET", root + "/pods", "", list("PodMetricsList", dbOne, webOne), "list metrics.k8s.io v1beta1 pods  "},
		"Namespace":    {"admin", "GET", root + "/namespaces/web/pods", "", list("PodMetricsList", webOne), "list metrics.k8s.io v1beta1 pods web "},
		"NoPods":       {"admin", "GET", root + "/namespaces/none/pods", "", list("PodMetricsList"), "list metrics.k8s.io v1beta1 pods none "},
		"Pod":          {"admin", "GET", root + "/namespaces/web/pods/one", "", typed("PodMetrics", webOne), "get metrics.k8s.io v1beta1 pods web one"},
		"NewPod":       {"admin", "GET", root + "/namespaces/web/pods/new", "", status("404", "NotFound", `podmetrics.metrics.k8s.io "web/new" not found`), "get metrics.k8s.io v1beta1 pods web new"},
		"Labels":       {"admin", "GET", root + "/pods?labelSelector=is+in+(two)", "", list("PodMetricsList"), "list metrics.k8s.io v1beta1 pods  "},
		"Names":        {"admin", "GET", root + "/pods?fieldSelector=metadata.name%3Done,metadata.namespace%21%3Dweb", "", list("PodMetricsList", dbOne), "list metrics.k8s.io v1beta1 pods  "},
		"BadLabels":    {"admin", "GET", root + "/pods?labelSelector=in+in", "", status("400", "BadRequest", "unable to parse labelSelector: unable to parse requirement: found '' expected: '('"), "list metrics.k8s.io v1beta1 pods  "},
		"BadField":     {"admin", "GET", root + "/nodes?fieldSelector=metadata.namespace%3Dx", "", status("400", "BadRequest", "field label not supported: metadata.namespace"), "list metrics.k8s.io v1beta1 nodes  "},
		"Watch":        {"admin", "GET", root + "/pods?watch=true", "", status("405", "MethodNotAllowed", "watch is not supported on resources of kind \"pods.metrics.k8s.io\""), "watch metrics.k8s.io v1beta1 pods  "},
		"Create":       {"admin", "POST", root + "/namespaces/web/pods", "", status("405", "MethodNotAllowed", "the server does not allow this method on the requested resource"), "post " + root + "/namespaces/web/pods"},
		"NoResource":   {"admin", "GET", root + "/services", "", status("404", "NotFound", "the server could not find the requested resource"), "get " + root + "/services"},
		"NotAllowed":   {"joe", "GET", root + "/namespaces/web/pods", "", status("403", "Forbidden", `forbidden: User "joe" cannot list resource "pods" in API group "metrics.k8s.io" in the namespace "web"`), "list metrics.k8s.io v1beta1 pods web "},
		"NotKnown":     {"", "GET", root + "/nodes", "", status("401", "Unauthorized", "Unauthorized"), ""},
		"NoReview":     {"unlucky", "GET", root + "/nodes", "", status("500", "InternalError", "Internal error occurred: authenticate: the API server does not answer"), ""},
		"NoMedia":      {"admin", "GET", root + "/nodes", "text/html", status("406", "NotAcceptable", "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"), "list metrics.k8s.io v1beta1 nodes  "},
		"YAML":         {"admin", "GET", root + "/namespaces/none/pods", "application/yaml", "apiVersion: metrics.k8s.io/v1beta1\nitems: []\nkind: PodMetricsList\nmetadata: {}\n", "list metrics.k8s.io v1beta1 pods none "},
		"Open":         {"", "GET", "/healthz", "", "page /healthz", ""},
		"Page":         {"admin", "GET", "/metrics", "", "page /metrics", "get /metrics"},
		"HiddenPage":   {"joe", "GET", "/metrics", "", status("403", "Forbidden", `forbidden: User "joe" cannot get path "/metrics"`), "get /metrics"},
		"LongQuery":    {"admin", "GET", root + "/pods?labelSelector=" + strings.Repeat("x", maxQuery), "", status("413", "RequestEntityTooLarge", "Request entity too large: the query is too long"), ""},
		"OtherVersion": {"admin", "GET", "/apis/metrics.k8s.io/v1/nodes", "", "page /apis/metrics.k8s.io/v1/nodes", "get /apis/metrics.k8s.io/v1/nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			h, asked := newHandler()
			w := ask(h, row.user, row.method, row.path, row.accept)
			got := w.Body.String()
			var s metav1.Status
			if json.Unmarshal(w.Body.Bytes(), &s) == nil && s.Kind == "Status" {
				if int(s.Code) != w.Code {
					t.Errorf("the code is %d, and %d in the Status", w.Code, s.Code)
				}
				got = status(strconv.Itoa(int(s.Code)), string(s.Reason), s.Message)
			}
			if diff := cmp.Diff(row.want, strings.TrimSuffix(got, "\n")+newline(row.want)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if *asked != row.asked {
				t.Errorf("it asked whether the user may %q, want %q", *asked, row.asked)
			}
		})
	}
}

// newline returns the newline at the end of want: that of JSON does not matter.
func newline(want string) string {
	if strings.HasSuffix(want, "\n") {
		return "\n"
	}
	return ""
}

func TestTable(t *testing.T) {
	h, _ := newHandler()
	const accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
	for path, want := range map[string]string{
		"/nodes":                   "a 1234567890n 3Mi 15.2s",
		"/nodes/a":                 "a 1234567890n 3Mi 15.2s",
		"/pods":                    "one 750m 1536Ki 14s\none 750m 1536Ki 14s",
		"/namespaces/web/pods/one": "one 750m 1536Ki 14s",
		"/namespaces/none/pods":    "",
	} {
		w := ask(h, "admin", "GET", root+path, accept)
		var table metav1.Table
		if err := json.Unmarshal(w.Body.Bytes(), &table); err != nil || table.Kind != "Table" || table.APIVersion != "meta.k8s.io/v1" || len(table.ColumnDefinitions) != 4 {
			t.Fatalf("%s: %v: %s", path, err, w.Body)
		}
		var rows []string
		for _, r := range table.Rows {
			var cells []string
			for _, c := range r.Cells {
				cells = append(cells, c.(string))
			}
			rows = append(rows, strings.Join(cells, " "))
			var meta metav1.PartialObjectMetadata
			if err := json.Unmarshal(r.Object.Raw, &meta); err != nil || meta.Kind != "PartialObjectMetadata" || meta.Name != cells[0] {
				t.Errorf("%s: the row's object is %s", path, r.Object.Raw)
			}
		}
		if diff := cmp.Diff(want, strings.Join(rows, "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

// TestProtobuf decodes what kubectl top reads.
func TestProtobuf(t *testing.T) {
	h, _ := newHandler()
	types := runtime.NewScheme()
	if err := metricsv1beta1.AddToScheme(types); err != nil {
		t.Fatal(err)
	}
	w := ask(h, "admin", "GET", root+"/namespaces/web/pods/one", "application/vnd.kubernetes.protobuf")
	if got := w.Header().Get("Content-Type"); got != scheme.Protobuf {
		t.Fatalf("the media type is %s", got)
	}
	obj, gvk, err := protobuf.NewSerializer(types, types).Decode(w.Body.Bytes(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := obj.(*metricsv1beta1.PodMetrics)
	if gvk.Kind != "PodMetrics" || m.Name != "one" || m.Window.Duration != 14*time.Second || m.Containers[1].Usage.Cpu().MilliValue() != 500 {
		t.Errorf("%s: %+v", gvk, m)
	}
}

func TestNegotiate(t *testing.T) {
	for accept, want := range map[string]form{
		"":                         {media: scheme.JSON},
		"*/*":                      {media: scheme.JSON},
		"application/yaml":         {media: scheme.YAML},
		"text/html, application/*": {media: scheme.JSON},
		"application/vnd.kubernetes.protobuf,application/json":                                 {media: scheme.Protobuf},
		"application/json;as=Table;v=v1;g=meta.k8s.io":                                         {scheme.JSON, true},
		"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json;q=0.5":  {media: scheme.JSON},
		"application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io, application/json":    {media: scheme.JSON},
		"application/json;as=Table;v=v9;g=meta.k8s.io,;;;,application/vnd.kubernetes.protobuf": {media: scheme.Protobuf},
	} {
		got, err := negotiate(accept)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", accept, got, err)
		}
	}
}

func FuzzNegotiate(f *testing.F) {
	f.Add("application/json;as=Table;v=v1;g=meta.k8s.io,*/*;q=0.1")
	f.Fuzz(func(t *testing.T, accept string) {
		got, err := negotiate(accept)
		if got.media == "" || err != nil && accept == "" {
			t.Errorf("%q: %+v, %v", accept, got, err)
		}
	})
}
