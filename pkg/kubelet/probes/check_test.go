package probes

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func portOf(t *testing.T, address string) intstr.IntOrString {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return intstr.FromInt(n)
}

var dial = Checker{Dial: (&net.Dialer{}).DialContext}

func podAt() *corev1.Pod { return &corev1.Pod{Status: corev1.PodStatus{PodIP: "127.0.0.1"}} }

func TestHTTPProbe(t *testing.T) {
	var got atomic.Pointer[http.Request] // each connection has its own goroutine
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Store(r.Clone(context.Background()))
		switch r.URL.Path {
		case "/ok":
			w.Write([]byte("fine"))
		case "/bad":
			w.WriteHeader(http.StatusInternalServerError)
		case "/moved":
			http.Redirect(w, r, "/ok", http.StatusFound)
		case "/away":
			http.Redirect(w, r, "http://elsewhere.example.org/", http.StatusFound)
		case "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		case "/slow":
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	u, _ := url.Parse(server.URL)
	for _, c := range []struct {
		path    string
		want    Outcome
		output  string // what the text contains
		headers []corev1.HTTPHeader
		check   func(*http.Request) bool
	}{
		{path: "/ok", want: Success, output: "fine", check: func(r *http.Request) bool {
			return r.Header.Get("User-Agent") == UserAgent && r.Header.Get("Accept") == "*/*"
		}},
		{path: "/bad", want: Failure, output: "HTTP probe failed with statuscode: 500"},
		{path: "/moved", want: Success, output: "fine"},
		{path: "/away", want: Warning, output: "Probe terminated redirects"},
		{path: "/round", want: Failure, output: "stopped after 10 redirects"},
		{path: "/slow", want: Failure, output: "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"},
		{path: "ok?a=b", want: Success, output: "fine", check: func(r *http.Request) bool { return r.URL.RawQuery == "a=b" }},
		{path: "/ok", want: Success, headers: []corev1.HTTPHeader{{Name: "Host", Value: "me.example.org"}, {Name: "X-A", Value: "1"}, {Name: "x-a", Value: "2"}, {Name: "User-Agent", Value: "own"}},
			check: func(r *http.Request) bool {
				return r.Host == "me.example.org" && strings.Join(r.Header["X-A"], ",") == "1,2" && r.Header.Get("User-Agent") == "own"
			}},
	} {
		spec := &corev1.Probe{TimeoutSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: c.path, Port: portOf(t, u.Host), HTTPHeaders: c.headers}}}
		res := dial.Check(t.Context(), podAt(), &corev1.Container{}, "id", spec)
		if res.Outcome != c.want || !strings.Contains(res.Output, c.output) {
			t.Errorf("%s: %+v, want %v %q", c.path, res, c.want, c.output)
		}
		if c.check != nil && !c.check(got.Load()) {
			t.Errorf("%s: request was %+v", c.path, got.Load())
		}
	}
}

func TestHTTPSProbeSkipsCertificateVerification(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	u, _ := url.Parse(server.URL)
	spec := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTPS, Port: intstr.FromString("web")}}}
	c := &corev1.Container{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: portOf(t, u.Host).IntVal}}}
	if res := dial.Check(t.Context(), podAt(), c, "id", spec); res.Outcome != Success {
		t.Errorf("%+v", res)
	}
}

func TestTCPProbe(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := portOf(t, ln.Addr().String())
	ask := func() Result {
		return dial.Check(t.Context(), podAt(), &corev1.Container{}, "id", &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port}}})
	}
	if res := ask(); res.Outcome != Success {
		t.Errorf("open: %+v", res)
	}
	ln.Close()
	if res := ask(); res.Outcome != Failure || !strings.Contains(res.Output, "connection refused") {
		t.Errorf("closed: %+v", res)
	}
}

func TestGRPCProbe(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, status := grpc.NewServer(), health.NewServer()
	healthpb.RegisterHealthServer(server, status)
	status.SetServingStatus("sick", healthpb.HealthCheckResponse_NOT_SERVING)
	go server.Serve(ln)
	defer server.Stop()
	ask := func(port int32, service string) Result {
		return dial.Check(t.Context(), podAt(), &corev1.Container{}, "id", &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: port, Service: &service}}})
	}
	port := portOf(t, ln.Addr().String()).IntVal
	if res := ask(port, ""); res.Outcome != Success {
		t.Errorf("healthy: %+v", res)
	}
	if res := ask(port, "sick"); res.Outcome != Failure || res.Output != `service unhealthy (responded with "NOT_SERVING")` {
		t.Errorf("sick: %+v", res)
	}
	if res := ask(port, "unknown"); res.Outcome != Failure {
		t.Errorf("unknown: %+v", res)
	}
	if res := ask(1, ""); res.Outcome != Failure || !strings.Contains(res.Output, "failed to connect service") {
		t.Errorf("nobody there: %+v", res)
	}
}

func TestAProbeThatCannotBeAskedCountsForNothing(t *testing.T) {
	spec := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("nosuch")}}}
	if res := dial.Check(t.Context(), podAt(), &corev1.Container{Name: "c"}, "id", spec); res.Outcome != Unknown {
		t.Errorf("%+v", res)
	}
	if res := dial.Check(t.Context(), podAt(), &corev1.Container{Name: "c"}, "id", &corev1.Probe{}); res.Outcome != Unknown {
		t.Errorf("%+v", res)
	}
}

func TestAPodWithoutAddressIsNotTakenForTheNode(t *testing.T) {
	for _, h := range []corev1.ProbeHandler{
		{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt(80)}}, {TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(80)}}, {GRPC: &corev1.GRPCAction{Port: 80}},
	} {
		none := Checker{Dial: func(_ context.Context, _, address string) (net.Conn, error) {
			t.Errorf("dialed %s", address)
			return nil, errors.New("no")
		}}
		if res := none.Check(t.Context(), &corev1.Pod{}, &corev1.Container{}, "id", &corev1.Probe{ProbeHandler: h}); res.Outcome != Unknown {
			t.Errorf("%+v", res)
		}
	}
}

func TestProbeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	blocked := Checker{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		cancel()
		<-ctx.Done()
		return nil, errors.New("no")
	}}
	began := time.Now()
	blocked.Check(ctx, podAt(), &corev1.Container{}, "id", &corev1.Probe{TimeoutSeconds: 60, ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(1)}}})
	if time.Since(began) > 10*time.Second {
		t.Error("it went on")
	}
}
