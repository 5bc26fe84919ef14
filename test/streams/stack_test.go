package streams_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"podium/pkg/apiserver/nodeproxy"
	"podium/pkg/apiserver/registry"
	"podium/pkg/client"
	"podium/pkg/client/access"
	"podium/pkg/client/remotecommand"
	"podium/pkg/kubelet/server"
	"podium/pkg/scheme"
)

const (
	apiAddress     = "api:6443"
	kubeletAddress = "192.0.2.10:10250"
	runtimeAddress = "runtime:9000"
)

// process is a command in the fake runtime, with its streams.
type process struct {
	cmd            []string
	stdin          io.Reader // nil if not attached
	stdout, stderr io.Writer
	sizes          chan remotecommand.Size
	gone           <-chan bool // the client's connection has ended
}

// stack is a client, an API server's node proxy, a kubelet and a runtime.
type stack struct {
	t       *testing.T
	net     network
	client  *client.Client
	runtime *fakeRuntime
	ca      *authority
	pods    []*corev1.Pod

	mu       sync.Mutex
	noSocket bool // the server does not support WebSocket
	servers  []*http.Server
	conns    map[string][]net.Conn // accepted, by server
	proxy    *nodeproxy.Proxy
}

func newStack(t *testing.T, n network, run func(*process) int) *stack {
	s := &stack{t: t, net: n, ca: newAuthority(t), conns: map[string][]net.Conn{}}
	s.runtime = &fakeRuntime{run: run, requests: map[string]any{}}
	s.pods = []*corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u1"},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{
			{Name: "c", Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}, {Name: "tty", TTY: true, Stdin: true}, {Name: "new"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.5", PodIPs: []corev1.PodIP{{IP: "10.0.0.5"}},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "c", ContainerID: "containerd://id-c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
				{Name: "tty", ContainerID: "containerd://id-tty", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
				{Name: "new", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}},
			}},
	}}
	s.serve(runtimeAddress, nil, s.runtime)
	s.serve(kubeletAddress, s.ca.server(t, "node-1"), server.New(server.Config{
		NodeName: "node-1", Pods: func() []*corev1.Pod { return s.pods }, Runtime: s.runtime, RootDir: "/", LogsDir: os.TempDir(),
		Streaming: &http.Transport{DialContext: n.dial, DisableKeepAlives: true},
		Access:    masters{access.New(access.Config{})},
	}))
	cert := s.ca.client(t, "kube-apiserver-kubelet-client", "system:masters")
	s.proxy = nodeproxy.New(nodeproxy.Config{Dial: n.dial,
		Certificate: func() *tls.Certificate { return cert }, Authority: func() *x509.CertPool { return s.ca.pool }})
	s.serve(apiAddress, s.ca.server(t, "api"), s.api())
	c, err := client.New(scheme.New(), client.Config{Servers: []string{"https://" + apiAddress}, Transport: &http.Transport{
		DialContext: n.dial, DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: s.ca.pool}}})
	if err != nil {
		t.Fatal(err)
	}
	s.client = c
	return s
}

// masters authenticates certificates, and allows the API server's own everything.
type masters struct{ *access.Delegate }

func (masters) MayResource(_ context.Context, u *access.User, _ authorizationv1.ResourceAttributes) (bool, error) {
	return slices.Contains(u.Groups, "system:masters"), nil
}

func (s *stack) serve(address string, cfg *tls.Config, h http.Handler) {
	srv := &http.Server{Handler: h, TLSConfig: cfg, TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ErrorLog: log.New(io.Discard, "", 0),
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateNew {
				s.mu.Lock()
				s.conns[address] = append(s.conns[address], c)
				s.mu.Unlock()
			}
		}}
	s.servers = append(s.servers, srv)
	ln := s.net.listen(s.t, address)
	go func() {
		if cfg == nil {
			srv.Serve(ln)
			return
		}
		srv.ServeTLS(ln, "", "")
	}()
}

// cut breaks all connections of a server, including hijacked ones.
func (s *stack) cut(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns[address] {
		c.Close()
	}
}

func (s *stack) close() {
	for _, srv := range s.servers {
		srv.Close()
	}
	s.proxy.Close()
}

// api routes requests as the API server's endpoints do.
func (s *stack) api() http.Handler {
	st := s.proxy.Streams()
	b := &backend{s}
	mux := http.NewServeMux()
	route := func(pattern, param string, c registry.Connect) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			refuse := s.noSocket
			s.mu.Unlock()
			if refuse && r.Header.Get("Upgrade") == "websocket" {
				http.Error(w, "no websockets here", http.StatusBadRequest)
				return
			}
			rest := ""
			if _, after, ok := strings.Cut(r.URL.Path, "/proxy/"); ok {
				rest = "/" + after
				if after == "" {
					rest = ""
				}
			}
			c(b, r.PathValue("ns"), r.PathValue(param), rest).ServeHTTP(w, r)
		})
	}
	pod := "/api/v1/namespaces/{ns}/pods/{name}"
	route(pod+"/exec", "name", st.PodExec)
	route(pod+"/attach", "name", st.PodAttach)
	route(pod+"/portforward", "name", st.PodPortForward)
	route(pod+"/log", "name", st.PodLog)
	for _, tail := range []string{"/proxy", "/proxy/{rest...}"} {
		route(pod+tail, "name", st.PodProxy)
		route("/api/v1/namespaces/{ns}/services/{name}"+tail, "name", st.ServiceProxy)
		route("/api/v1/nodes/{name}"+tail, "name", st.NodeProxy)
	}
	return mux
}

// backend is the store behind the proxy.
type backend struct{ s *stack }

func (b *backend) Get(_ context.Context, gvr schema.GroupVersionResource, namespace, name string) (scheme.Object, error) {
	switch gvr.Resource {
	case "pods":
		for _, p := range b.s.pods {
			if p.Name == name && p.Namespace == namespace {
				return p, nil
			}
		}
	case "nodes":
		if name == "node-1" {
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "node-1"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.10"}}}}, nil
		}
	case "services":
		if name == "svc" {
			return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
				Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "web", Port: 80}}}}, nil
		}
	}
	return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
}

func (b *backend) List(context.Context, schema.GroupVersionResource, string) ([]scheme.Object, error) {
	name, port, no := "web", int32(8080), false
	return []scheme.Object{&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelServiceName: "svc"}},
		Ports:      []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.5"}},
			{Addresses: []string{"10.0.0.6"}, Conditions: discoveryv1.EndpointConditions{Ready: &no}}},
	}}, nil
}

func (b *backend) Create(context.Context, schema.GroupVersionResource, scheme.Object) (scheme.Object, error) {
	panic("not of a stream")
}
func (b *backend) Update(context.Context, schema.GroupVersionResource, string, string, func(scheme.Object) error) (scheme.Object, error) {
	panic("not of a stream")
}
func (b *backend) Delete(context.Context, schema.GroupVersionResource, string, string, *metav1.DeleteOptions) error {
	panic("not of a stream")
}
func (b *backend) DeleteAdmitted(context.Context, schema.GroupVersionResource, string, string, *metav1.DeleteOptions) error {
	panic("not of a stream")
}

// fakeRuntime is the streaming part of a CRI runtime: it returns URLs on its own HTTP server, and
// runs Go functions as commands.
type fakeRuntime struct {
	runtimeapi.RuntimeServiceClient
	run     func(*process) int
	forward func(port int, data io.ReadWriteCloser) error
	logPath string
	ended   bool

	mu       sync.Mutex
	requests map[string]any
}

func (f *fakeRuntime) remember(kind string, req any) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	token := fmt.Sprintf("%s-%d", kind, len(f.requests))
	f.requests[token] = req
	return "http://" + runtimeAddress + "/" + kind + "/" + token
}

func (f *fakeRuntime) Exec(_ context.Context, req *runtimeapi.ExecRequest, _ ...grpc.CallOption) (*runtimeapi.ExecResponse, error) {
	return &runtimeapi.ExecResponse{Url: f.remember("exec", req)}, nil
}

func (f *fakeRuntime) Attach(_ context.Context, req *runtimeapi.AttachRequest, _ ...grpc.CallOption) (*runtimeapi.AttachResponse, error) {
	return &runtimeapi.AttachResponse{Url: f.remember("attach", &runtimeapi.ExecRequest{ContainerId: req.ContainerId, Cmd: []string{"attached"},
		Tty: req.Tty, Stdin: req.Stdin, Stdout: req.Stdout, Stderr: req.Stderr})}, nil
}

func (f *fakeRuntime) PortForward(_ context.Context, req *runtimeapi.PortForwardRequest, _ ...grpc.CallOption) (*runtimeapi.PortForwardResponse, error) {
	return &runtimeapi.PortForwardResponse{Url: f.remember("portforward", req)}, nil
}

func (f *fakeRuntime) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest, ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{Id: "sandbox"}}}, nil
}

func (f *fakeRuntime) ContainerStatus(context.Context, *runtimeapi.ContainerStatusRequest, ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	state := runtimeapi.ContainerState_CONTAINER_RUNNING
	if f.ended {
		state = runtimeapi.ContainerState_CONTAINER_EXITED
	}
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{State: state, LogPath: f.logPath}}, nil
}

func (f *fakeRuntime) ListContainers(context.Context, *runtimeapi.ListContainersRequest, ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{}, nil
}

func (f *fakeRuntime) ListContainerStats(context.Context, *runtimeapi.ListContainerStatsRequest, ...grpc.CallOption) (*runtimeapi.ListContainerStatsResponse, error) {
	return &runtimeapi.ListContainerStatsResponse{}, nil
}

func (f *fakeRuntime) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	f.mu.Lock()
	req := f.requests[parts[len(parts)-1]]
	delete(f.requests, parts[len(parts)-1])
	f.mu.Unlock()
	switch req := req.(type) {
	case *runtimeapi.ExecRequest:
		f.serveExec(w, r, req)
	case *runtimeapi.PortForwardRequest:
		f.servePortForward(w, r)
	default:
		http.NotFound(w, r)
	}
}

// replied is a new stream. Like a runtime, the servers here use it only once its reply is
// sent: the client cannot tell a stream that is reset before from one that was refused.
type replied struct {
	httpstream.Stream
	sent <-chan struct{}
}

// serveExec is a runtime's server for exec over SPDY, protocol v4 only.
func (f *fakeRuntime) serveExec(w http.ResponseWriter, r *http.Request, req *runtimeapi.ExecRequest) {
	if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
		return
	}
	incoming := make(chan replied, 5)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, sent <-chan struct{}) error {
		incoming <- replied{s, sent}
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	want := 1
	for _, on := range []bool{req.Stdin, req.Stdout, req.Stderr, req.Tty} {
		if on {
			want++
		}
	}
	got := map[string]httpstream.Stream{}
	for len(got) < want {
		select {
		case s := <-incoming:
			<-s.sent
			got[s.Headers().Get(corev1.StreamType)] = s.Stream
		case <-conn.CloseChan():
			return
		case <-time.After(30 * time.Second):
			return
		}
	}
	p := &process{cmd: req.Cmd, sizes: make(chan remotecommand.Size, 10), gone: conn.CloseChan()}
	if s := got["stdin"]; s != nil {
		p.stdin = s
	}
	if s := got["stdout"]; s != nil {
		p.stdout = s
	}
	if s := got["stderr"]; s != nil {
		p.stderr = s
	}
	if s := got["resize"]; s != nil {
		go func() {
			for d := json.NewDecoder(s); ; {
				var size remotecommand.Size
				if d.Decode(&size) != nil {
					return
				}
				p.sizes <- size
			}
		}()
	}
	code := f.run(p)
	status := metav1.Status{Status: metav1.StatusSuccess}
	if code != 0 {
		status = metav1.Status{Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Message: fmt.Sprintf("command terminated with non-zero exit code: %d", code),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ExitCode", Message: strconv.Itoa(code)}}}}
	}
	text, _ := json.Marshal(status)
	got["error"].Write(text)
}

// servePortForward is a runtime's server for port-forward over SPDY.
func (f *fakeRuntime) servePortForward(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return
	}
	incoming := make(chan replied, 100)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, sent <-chan struct{}) error {
		incoming <- replied{s, sent}
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	failures := map[string]httpstream.Stream{}
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		select {
		case <-conn.CloseChan():
			return
		case s := <-incoming:
			id := s.Headers().Get(corev1.PortForwardRequestIDHeader)
			if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
				failures[id] = s.Stream
				continue
			}
			failure := failures[id]
			port, _ := strconv.Atoi(s.Headers().Get(corev1.PortHeader))
			wg.Go(func() {
				<-s.sent
				if err := f.forward(port, s.Stream); err != nil {
					fmt.Fprint(failure, err)
				}
				failure.Close()
				s.Close()
			})
		}
	}
}
