package client_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"podium/pkg/client"
	"podium/pkg/scheme"
)

func pod(name, revision string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: revision}}
}

// serve starts an HTTPS server that speaks HTTP/2 and a client for it.
func serve(t *testing.T, h http.HandlerFunc) (*client.Client, *httptest.Server) {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	c, err := client.New(scheme.New(), client.Config{
		Servers: []string{srv.URL}, TLS: trust(srv), UserAgent: "test",
		Token: func() (string, error) { return "secret", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdle)
	return c, srv
}

func trust(srv *httptest.Server) *tls.Config {
	return srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
}

func write(t *testing.T, w http.ResponseWriter, media string, obj runtime.Object) {
	t.Helper()
	data, err := scheme.New().Encode(obj, media)
	if err != nil {
		t.Error(err)
	}
	w.Header().Set("Content-Type", media)
	_, _ = w.Write(data)
}

// roundTripper adapts a function to http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestRequests(t *testing.T) {
	type seen struct{ Method, URL, ContentType, Accept, Auth, Agent, Proto string }
	var got seen
	var body []byte
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = seen{r.Method, r.URL.String(), r.Header.Get("Content-Type"), r.Header.Get("Accept"),
			r.Header.Get("Authorization"), r.Header.Get("User-Agent"), r.Proto}
		body, _ = io.ReadAll(r.Body)
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/pods") {
			write(t, w, scheme.Protobuf, &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []corev1.Pod{*pod("a", "1"), *pod("b", "2")}})
			return
		}
		write(t, w, scheme.Protobuf, pod("a", "7"))
	})
	pods := client.For[*corev1.Pod](c).In("ns")
	const proto, accept = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	ctx := t.Context()
	for _, test := range []struct {
		name string
		do   func() (any, error)
		want seen
		out  any
	}{
		{"get", func() (any, error) { return pods.Get(ctx, "a") },
			seen{"GET", "/api/v1/namespaces/ns/pods/a", "", accept, "Bearer secret", "test", "HTTP/2.0"}, pod("a", "7")},
		{"list", func() (any, error) {
			return pods.List(ctx, metav1.ListOptions{LabelSelector: "a=b", Limit: 2})
		}, seen{"GET", "/api/v1/namespaces/ns/pods?labelSelector=a%3Db&limit=2", "", accept, "Bearer secret", "test", "HTTP/2.0"},
			&client.List[*corev1.Pod]{ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []*corev1.Pod{pod("a", "1"), pod("b", "2")}}},
		{"create in the object's namespace", func() (any, error) { return pods.In("").Create(ctx, pod("a", "")) },
			seen{"POST", "/api/v1/namespaces/ns/pods", proto, accept, "Bearer secret", "test", "HTTP/2.0"}, pod("a", "7")},
		{"update status", func() (any, error) { return pods.UpdateStatus(ctx, pod("a", "")) },
			seen{"PUT", "/api/v1/namespaces/ns/pods/a/status", proto, accept, "Bearer secret", "test", "HTTP/2.0"}, pod("a", "7")},
		{"patch", func() (any, error) { return pods.Patch(ctx, "a", types.MergePatchType, []byte("{}"), "status") },
			seen{"PATCH", "/api/v1/namespaces/ns/pods/a/status", "application/merge-patch+json", accept, "Bearer secret", "test", "HTTP/2.0"}, pod("a", "7")},
		{"delete", func() (any, error) { return nil, pods.Delete(ctx, "a", metav1.DeleteOptions{}) },
			seen{"DELETE", "/api/v1/namespaces/ns/pods/a", "", accept, "Bearer secret", "test", "HTTP/2.0"}, nil},
		{"post to a subresource", func() (any, error) {
			var out corev1.Pod
			err := pods.Post(ctx, "a", "binding", &corev1.Binding{Target: corev1.ObjectReference{Name: "n"}}, &out)
			return &out, err
		}, seen{"POST", "/api/v1/namespaces/ns/pods/a/binding", proto, accept, "Bearer secret", "test", "HTTP/2.0"}, pod("a", "7")},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, err := test.do()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.out, out); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if test.want.ContentType == proto && !strings.HasPrefix(string(body), "k8s\x00") {
				t.Errorf("body %q is no protobuf object", body)
			}
		})
	}
}

func TestNamespacedKindsNeedANamespace(t *testing.T) {
	c, _ := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
	pods := client.For[*corev1.Pod](c)
	_, getErr := pods.Get(t.Context(), "a")
	_, createErr := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	_, nameErr := pods.In("ns").Get(t.Context(), "")
	if getErr == nil || createErr == nil || nameErr == nil {
		t.Errorf("get: %v, create: %v, no name: %v", getErr, createErr, nameErr)
	}
}

func TestErrorsAreStatuses(t *testing.T) {
	notFound := apierrors.NewNotFound(corev1.Resource("pods"), "a").Status()
	for _, test := range []struct {
		name   string
		answer func(http.ResponseWriter)
		is     func(error) bool
		text   string
	}{
		{"a Status in protobuf", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", scheme.Protobuf)
			data, _ := scheme.New().Encode(&notFound, scheme.Protobuf)
			w.WriteHeader(404)
			_, _ = w.Write(data)
		}, apierrors.IsNotFound, `pods "a" not found`},
		{"a Status in JSON", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", scheme.JSON)
			data, _ := scheme.New().Encode(&notFound, scheme.JSON)
			w.WriteHeader(404)
			_, _ = w.Write(data)
		}, apierrors.IsNotFound, `pods "a" not found`},
		{"a page of a proxy", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(502)
			_, _ = io.WriteString(w, "bad gateway")
		}, apierrors.IsInternalError, "bad gateway"},
		{"nothing at all", func(w http.ResponseWriter) { w.WriteHeader(409) }, apierrors.IsConflict, "conflict"},
		{"a redirect is not followed", func(w http.ResponseWriter) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(307)
		}, func(err error) bool { var s *apierrors.StatusError; return errors.As(err, &s) }, "307"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) { test.answer(w) })
			_, err := client.For[*corev1.Pod](c).In("ns").Get(t.Context(), "a")
			var status *apierrors.StatusError
			if !errors.As(err, &status) {
				t.Fatalf("%T %v is no StatusError", err, err)
			}
			if !test.is(err) && status.ErrStatus.Code != 502 || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%v, reason %s", err, status.ErrStatus.Reason)
			}
		})
	}
}

func TestJSONIsReadToo(t *testing.T) {
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/pods") {
			write(t, w, scheme.JSON, &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []corev1.Pod{*pod("a", "1")}})
			return
		}
		write(t, w, scheme.JSON, pod("a", "7"))
	})
	pods := client.For[*corev1.Pod](c).In("ns")
	got, err := pods.Get(t.Context(), "a")
	if diff := cmp.Diff(pod("a", "7"), got); err != nil || diff != "" {
		t.Errorf("get: %v\n%s", err, diff)
	}
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	want := &client.List[*corev1.Pod]{ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []*corev1.Pod{pod("a", "1")}}
	if diff := cmp.Diff(want, list); err != nil || diff != "" {
		t.Errorf("list: %v\n%s", err, diff)
	}
}

func TestRetryAfterIsObeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, code := range []int{429, 503} {
			tries := 0
			c := fake(t, func(r *http.Request) (*http.Response, error) {
				if tries++; tries < 3 {
					return answer(code, http.Header{"Retry-After": {"2"}}, ""), nil
				}
				return answer(200, nil, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}`), nil
			})
			began := time.Now()
			if _, err := client.For[*corev1.Pod](c).In("ns").Create(t.Context(), pod("a", "")); err != nil {
				t.Fatal(err)
			}
			if tries != 3 || time.Since(began) != 4*time.Second {
				t.Errorf("%d: %d tries in %v", code, tries, time.Since(began))
			}
		}
		c := fake(t, func(r *http.Request) (*http.Response, error) { return answer(503, nil, ""), nil })
		if _, err := client.For[*corev1.Pod](c).In("ns").Get(t.Context(), "a"); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("503 without Retry-After: %v", err)
		}
	})
}

func fake(t *testing.T, f roundTripper, servers ...string) *client.Client {
	t.Helper()
	if len(servers) == 0 {
		servers = []string{"https://a"}
	}
	c, err := client.New(scheme.New(), client.Config{Servers: servers, Transport: f})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func answer(code int, h http.Header, body string) *http.Response {
	if h == nil {
		h = http.Header{}
	}
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1}
}

func TestServersAreTriedInTurnAndKept(t *testing.T) {
	down := map[string]bool{"a": true}
	var asked []string
	c := fake(t, func(r *http.Request) (*http.Response, error) {
		asked = append(asked, r.URL.Host)
		if down[r.URL.Host] {
			return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		}
		return answer(200, nil, `{"kind":"Pod","apiVersion":"v1"}`), nil
	}, "https://a", "https://b", "https://c")
	get := func() error {
		_, err := client.For[*corev1.Pod](c).In("ns").Get(context.Background(), "x")
		return err
	}
	if err := errors.Join(get(), get()); err != nil {
		t.Fatal(err)
	}
	down["b"] = true
	if err := errors.Join(get(), get()); err != nil {
		t.Fatal(err)
	}
	down["c"] = true
	if err := get(); err == nil || !strings.Contains(err.Error(), "https://c/api") {
		t.Errorf("all down: %v", err)
	}
	if diff := cmp.Diff("a b b b c c c a b", strings.Join(asked, " ")); diff != "" {
		t.Error(diff)
	}
}

func TestABrokenRequestIsNotSentTwice(t *testing.T) {
	tries := 0
	c := fake(t, func(*http.Request) (*http.Response, error) { tries++; return nil, io.ErrUnexpectedEOF }, "https://a", "https://b")
	if _, err := client.For[*corev1.Pod](c).Create(t.Context(), pod("a", "")); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if tries != 1 {
		t.Errorf("sent %d times", tries)
	}
}

func frame(t *testing.T, eventType string, obj runtime.Object) []byte {
	t.Helper()
	raw, err := scheme.New().Encode(obj, scheme.Protobuf)
	if err != nil {
		t.Fatal(err)
	}
	e := metav1.WatchEvent{Type: eventType, Object: runtime.RawExtension{Raw: raw}}
	data, err := e.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)
}

func TestWatch(t *testing.T) {
	big := pod("big", "3")
	big.Annotations = map[string]string{"x": strings.Repeat("y", 3<<20)}
	gone := apierrors.NewResourceExpired("too old").Status()
	for _, test := range []struct {
		name, media string
		body        func() []byte
		want        []client.Event[*corev1.Pod]
		end         func(error) bool
	}{
		{"protobuf", scheme.Protobuf + ";stream=watch", func() []byte {
			return append(append(frame(t, "ADDED", pod("a", "1")), frame(t, "BOOKMARK", pod("", "2"))...), frame(t, "MODIFIED", big)...)
		}, []client.Event[*corev1.Pod]{{Type: watch.Added, Object: pod("a", "1")}, {Type: watch.Bookmark, Object: pod("", "2")}, {Type: watch.Modified, Object: big}},
			func(err error) bool { return err == io.EOF }},
		{"JSON", "application/json;stream=watch", func() []byte {
			return []byte(`{"type":"DELETED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"ns","name":"a","resourceVersion":"5"}}}` + "\n")
		}, []client.Event[*corev1.Pod]{{Type: watch.Deleted, Object: pod("a", "5")}}, func(err error) bool { return err == io.EOF }},
		{"an ERROR event is a StatusError", scheme.Protobuf, func() []byte { return frame(t, "ERROR", &gone) }, nil, apierrors.IsResourceExpired},
		{"a frame that breaks off", scheme.Protobuf, func() []byte { f := frame(t, "ADDED", pod("a", "1")); return f[:len(f)-3] }, nil,
			func(err error) bool { return err == io.ErrUnexpectedEOF }},
		{"a length that breaks off", scheme.Protobuf, func() []byte { return []byte{0, 0} }, nil, func(err error) bool { return err == io.ErrUnexpectedEOF }},
		{"a length out of its mind", scheme.Protobuf, func() []byte { return []byte{255, 255, 255, 255, 1} }, nil, func(err error) bool { return err != nil && err != io.EOF }},
		{"another kind", scheme.Protobuf, func() []byte { return frame(t, "ADDED", &corev1.Node{}) }, nil,
			func(err error) bool { return err != nil && strings.Contains(err.Error(), "Node") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", test.media)
				_, _ = w.Write(test.body())
			})
			w, err := client.For[*corev1.Pod](c).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			var got []client.Event[*corev1.Pod]
			for {
				var e client.Event[*corev1.Pod]
				if e, err = w.Next(); err != nil {
					break
				}
				got = append(got, e)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if !test.end(err) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

func TestStopEndsABlockedWatch(t *testing.T) {
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	for name, end := range map[string]func(*client.Watch[*corev1.Pod], context.CancelFunc){
		"stop":    func(w *client.Watch[*corev1.Pod], _ context.CancelFunc) { w.Stop(); w.Stop() },
		"context": func(_ *client.Watch[*corev1.Pod], cancel context.CancelFunc) { cancel() },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		w, err := client.For[*corev1.Pod](c).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { _, err := w.Next(); done <- err }()
		end(w, cancel)
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: Next returned %v", name, err)
		}
		cancel()
		w.Stop()
	}
}

func TestDial(t *testing.T) {
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 || r.Header.Get("Upgrade") != "echo" {
			http.Error(w, r.Proto, 400)
			return
		}
		conn, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		// The first bytes arrive together with the response: they must not be lost.
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello ")
		_, _ = io.CopyN(conn, buf, 5)
	})
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
	ctx, cancel := context.WithCancel(t.Context())
	conn, resp, err := c.Dial(ctx, client.Request{Path: "/x", Header: upgrade})
	if err != nil {
		t.Fatal(err)
	}
	cancel() // ctx bounds the handshake only
	defer conn.Close()
	if resp.StatusCode != 101 || conn.RemoteAddr().Network() != "tcp" {
		t.Error(resp.Status, conn.RemoteAddr())
	}
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Error(err)
	}
	if _, err := io.WriteString(conn, "world"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); string(got) != "hello world" {
		t.Errorf("%q %v", got, err)
	}
	if _, _, err := c.Dial(t.Context(), client.Request{Path: "/x"}); !apierrors.IsBadRequest(err) {
		t.Errorf("without the headers: %v", err)
	}
}

func TestA401TurnsToNewConnections(t *testing.T) {
	var conns atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 && conns.Load() < 2 {
			w.WriteHeader(401)
			return
		}
		write(t, w, scheme.Protobuf, pod("a", "1"))
	}))
	srv.EnableHTTP2 = true
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.StartTLS()
	defer srv.Close()
	synced := time.Now().Add(-time.Hour)
	c, err := client.New(scheme.New(), client.Config{Servers: []string{srv.URL}, TLS: trust(srv)})
	if err != nil {
		t.Fatal(err)
	}
	client.AgeConnections(c, synced)
	if _, err := client.For[*corev1.Pod](c).In("ns").Get(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if conns.Load() != 2 {
		t.Errorf("%d connections", conns.Load())
	}
	c.CloseIdle()
}
