package docker

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/cloud"
)

// machine is a container of the fake engine: its state and its routing table.
type machine struct {
	state, zone, address string
	routes               map[string]string
}

// host is a fake engine with a socket.
type host struct {
	*testing.T
	socket string

	mu       sync.Mutex
	machines map[string]*machine
	execs    map[string][]string
	label    string // of the network
	broken   string // a path that is answered with status 500
	refused  map[string]string
}

func newHost(t *testing.T) *host {
	h := &host{T: t, socket: filepath.Join(t.TempDir(), "docker.sock"), machines: map[string]*machine{}, execs: map[string][]string{}}
	l, err := net.Listen("unix", h.socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containers/json", h.list)
	mux.HandleFunc("GET /networks/{name}", h.network)
	mux.HandleFunc("POST /containers/{id}/exec", h.exec)
	mux.HandleFunc("POST /exec/{id}/start", h.start)
	mux.HandleFunc("GET /exec/{id}/json", h.ended)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.broken != "" && strings.HasPrefix(r.URL.Path, h.broken) {
			http.Error(w, `{"message":"out of order"}`, http.StatusInternalServerError)
			return
		}
		mux.ServeHTTP(w, r)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close(); <-done })
	return h
}

func (h *host) list(w http.ResponseWriter, r *http.Request) {
	if want := `{"label":["podium.dev/cluster=ci","podium.dev/role"]}`; r.URL.Query().Get("filters") != want || r.URL.Query().Get("all") != "1" {
		h.Errorf("the engine was asked for %s", r.URL.RawQuery)
	}
	out := []any{}
	for name, m := range h.machines {
		address := m.address
		if m.state == "exited" {
			address = ""
		}
		out = append(out, map[string]any{
			"Id": "id-" + name, "Names": []string{"/other/alias", "/" + name}, "State": m.state, "Labels": map[string]string{"podium.dev/zone": m.zone},
			"NetworkSettings": map[string]any{"Networks": map[string]any{"podium-ci": map[string]any{
				"IPAddress": address, "IPAMConfig": map[string]any{"IPv4Address": m.address},
			}, "bridge": map[string]any{"IPAddress": "172.17.0.2", "IPAMConfig": nil}}},
		})
	}
	_ = json.NewEncoder(w).Encode(out)
}

func (h *host) network(w http.ResponseWriter, r *http.Request) {
	_ = json.NewEncoder(w).Encode(map[string]any{"Name": r.PathValue("name"), "Labels": map[string]string{"podium.dev/load-balancers": h.label}})
}

func (h *host) exec(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.PathValue("id"), "id-")
	if m := h.machines[name]; m == nil || m.state != "running" {
		http.Error(w, `{"message":"Container is not running"}`, http.StatusConflict)
		return
	}
	var body struct{ Cmd []string }
	_ = json.NewDecoder(r.Body).Decode(&body)
	id := fmt.Sprint("exec-", len(h.execs))
	h.execs[id] = append([]string{name}, body.Cmd...)
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]string{"Id": id})
}

// start implements the parts of the ip command that the provider uses.
func (h *host) start(w http.ResponseWriter, r *http.Request) {
	command := h.execs[r.PathValue("id")]
	table, args := h.machines[command[0]].routes, strings.Join(command[1:], " ")
	switch {
	case h.refused[command[0]] != "":
		_, _ = w.Write(frame(2, h.refused[command[0]]))
	case args == "ip -4 -json route show proto 78":
		text := "["
		for _, dst := range slices.Sorted(mapKeys(table)) {
			text += fmt.Sprintf(`{"dst":%q,"gateway":%q,"dev":"eth0"},`, dst, table[dst])
		}
		text = strings.TrimSuffix(text, ",") + "]"
		_, _ = w.Write(append(frame(1, text[:1]), frame(1, text[1:])...))
	case args == "ip -6 -json route show proto 78":
	case strings.HasPrefix(args, "ip -4 route replace ") && strings.HasSuffix(args, " proto 78"):
		table[command[5]] = command[7]
	case strings.HasPrefix(args, "ip -4 route flush exact ") && strings.HasSuffix(args, " proto 78"):
		delete(table, command[6])
	default:
		h.Errorf("what is %q?", args)
	}
}

func mapKeys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func (h *host) ended(w http.ResponseWriter, r *http.Request) {
	code := 0
	if h.refused[h.execs[r.PathValue("id")][0]] != "" {
		code = 2
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"ExitCode": code, "Running": false})
}

func frame(stream byte, text string) []byte {
	b := append([]byte{stream, 0, 0, 0}, binary.BigEndian.AppendUint32(nil, uint32(len(text)))...)
	return append(b, text...)
}

func (h *host) add(name, state, address string) *machine {
	m := &machine{state: state, zone: "z1", address: address, routes: map[string]string{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.machines[name] = m
	return m
}

func (h *host) change(do func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	do()
}

func (h *host) provider() *cloud.Provider {
	h.Helper()
	text := "apiVersion: config.podium.dev/v1alpha1\nkind: DockerCloud\nsocket: " + h.socket
	p, err := New(cloud.Setup{Config: []byte(text), ClusterName: "ci"})
	if err != nil {
		h.Fatal(err)
	}
	return p
}

func node(name, id string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: id}}
}

func TestContainersAreInstances(t *testing.T) {
	h := newHost(t)
	h.add("ci-worker", "running", "10.87.0.3")
	h.add("ci-worker2", "exited", "10.87.0.4")
	h.add("ci-worker3", "paused", "10.87.0.5")
	p := h.provider().Instances
	got, err := p.Metadata(t.Context(), node("ci-worker", ""))
	want := cloud.Metadata{ProviderID: "docker://ci/ci-worker", Type: "container", Zone: "z1", Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "10.87.0.3"}, {Type: corev1.NodeHostName, Address: "ci-worker"},
	}}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Error(err, d)
	}
	if got, err := p.Metadata(t.Context(), node("renamed", "docker://ci/ci-worker2")); err != nil || got.Addresses[0].Address != "10.87.0.4" {
		t.Errorf("the ID says which container it is, and one that is off keeps its address: %v, %v", got, err)
	}
	for name, want := range map[string]bool{"ci-worker": false, "ci-worker2": true, "ci-worker3": false} {
		if off, err := p.Shutdown(t.Context(), node(name, "docker://ci/"+name)); err != nil || off != want {
			t.Errorf("%s: off %v, %v", name, off, err)
		}
	}
	if _, err := p.Shutdown(t.Context(), node("ci-worker9", "")); !errors.Is(err, cloud.ErrNotFound) {
		t.Errorf("a container that is not there: %v", err)
	}
	if _, err := p.Metadata(t.Context(), node("x", "docker://other/x")); err == nil || errors.Is(err, cloud.ErrNotFound) {
		t.Errorf("another cluster's node is nothing that is known here: %v", err)
	}
}

// An error of the engine does not mean that the instance is gone.
func TestAnEngineThatDoesNotAnswerRight(t *testing.T) {
	h := newHost(t)
	p := h.provider().Instances
	h.change(func() { h.broken = "/containers" })
	if _, err := p.Shutdown(t.Context(), node("a", "")); err == nil || errors.Is(err, cloud.ErrNotFound) || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("got %v", err)
	}
	gone := &instances{engine: newEngine(h.socket + "x"), cluster: "ci"}
	if _, err := gone.Shutdown(t.Context(), node("a", "")); err == nil || errors.Is(err, cloud.ErrNotFound) || !strings.Contains(err.Error(), "mounted there") {
		t.Errorf("got %v", err)
	}
}

func TestRoutesAreInEveryContainer(t *testing.T) {
	h := newHost(t)
	a, b, c := h.add("a", "running", "10.87.0.2"), h.add("b", "running", "10.87.0.3"), h.add("c", "running", "10.87.0.4")
	off := h.add("off", "exited", "10.87.0.5")
	p := h.provider().Routes
	list := func(what, want string) {
		t.Helper()
		routes, err := p.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range routes {
			got = append(got, strings.TrimSpace(fmt.Sprint(r.Node, " ", r.Destination, map[bool]string{true: " incomplete"}[r.Incomplete])))
		}
		if d := cmp.Diff(want, strings.Join(got, "; ")); d != "" {
			t.Errorf("%s: %s", what, d)
		}
	}
	toA := cloud.Route{Node: "a", Destination: netip.MustParsePrefix("10.244.1.0/24")}
	toOff := cloud.Route{Node: "off", Destination: netip.MustParsePrefix("10.244.2.0/24")}
	list("none yet", "")
	for _, r := range []cloud.Route{toA, toA, toOff} {
		if err := p.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	list("made, twice is fine", "a 10.244.1.0/24; off 10.244.2.0/24")
	if len(a.routes) != 1 || b.routes["10.244.1.0/24"] != "10.87.0.2" || len(c.routes) != 2 || len(off.routes) != 0 {
		t.Error(a.routes, b.routes, c.routes, off.routes)
	}
	h.change(func() { clear(c.routes) })
	list("a machine was restarted", "a 10.244.1.0/24 incomplete; off 10.244.2.0/24 incomplete")
	h.change(func() { c.routes["10.244.1.0/24"], c.routes["10.244.2.0/24"] = "10.87.0.99", "10.87.0.5" })
	list("one leads astray", "a 10.244.1.0/24 incomplete; off 10.244.2.0/24")
	h.change(func() { delete(h.machines, "a") })
	list("its node is gone", "10.244.1.0/24; off 10.244.2.0/24")
	if err := p.Delete(t.Context(), toA); err != nil {
		t.Fatal(err)
	}
	list("removed", "off 10.244.2.0/24")
	if err := p.Create(t.Context(), toA); !errors.Is(err, cloud.ErrNotFound) {
		t.Errorf("a route to nobody: %v", err)
	}
	h.change(func() { h.refused = map[string]string{"b": "RTNETLINK answers: Operation not permitted"} })
	if _, err := p.List(t.Context()); err == nil || !strings.Contains(err.Error(), "container b") || !strings.Contains(err.Error(), "not permitted") {
		t.Errorf("a command that fails: %v", err)
	}
}

func TestLoadBalancerRangeOfNetwork(t *testing.T) {
	h := newHost(t)
	h.change(func() { h.label = "10.87.0.224-10.87.0.254" })
	e := newEngine(h.socket)
	if r, err := e.keeps(t.Context(), "ci"); err != nil || r.String() != h.label {
		t.Error(r, err)
	}
	h.change(func() { h.label = "" })
	if _, err := e.keeps(t.Context(), "ci"); err == nil || !strings.Contains(err.Error(), "create the cluster again") {
		t.Error(err)
	}
}

func TestBadConfigurationIsRefused(t *testing.T) {
	_, err := New(cloud.Setup{Config: []byte("apiVersion: config.podium.dev/v1alpha1\nkind: DockerCloud\nsocket: here\nport: 1")})
	for _, want := range []string{"socket", "port"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v says nothing of %s", err, want)
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add(append(frame(1, "out"), frame(2, "err")...))
	f.Add([]byte{1, 0, 0, 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, data []byte) {
		stdout, stderr, err := split(data)
		if err == nil && len(stdout)+len(stderr) > len(data) {
			t.Errorf("%q grew", data)
		}
		if err == nil && len(stdout) > 0 && !bytes.Contains(data, []byte(stdout[:1])) {
			t.Errorf("%q is not from %q", stdout, data)
		}
	})
}
