package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	healthpb "k8s.io/kubelet/pkg/apis/dra-health/v1"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"podium/pkg/kubelet/plugins"
)

const gpu, nic = "gpu.example.com", "nic.example.com"

// driver is a DRA driver on a real socket. It returns a CDI device vendor/claim=request
// for each of its devices of a claim.
type driver struct {
	drapb.UnimplementedDRAPluginServer

	name   string
	world  *world
	plugin plugins.Plugin
	server *grpc.Server
	health *healthService // nil: it does not serve the health of devices

	mu       sync.Mutex
	prepared map[string]bool // claims by UID
	calls    []string
	// Before runs at the begin of each call; an error is the call's. Answer changes the
	// answer of NodePrepareResources.
	before func(ctx context.Context, method string) error
	answer func(*drapb.NodePrepareResourcesResponse)
}

// serve serves on a new socket.
func (d *driver) serve(socket string, versions ...string) {
	d.world.t.Helper()
	path := filepath.Join(d.world.root, socket)
	listener, err := net.Listen("unix", path)
	must(d.world.t, err)
	d.server = grpc.NewServer(grpc.WaitForHandlers(d.health != nil))
	drapb.RegisterDRAPluginServer(d.server, d)
	drav1beta1.RegisterDRAPluginServer(d.server, drav1beta1.V1ServerWrapper{DRAPluginServer: d})
	if d.health != nil {
		healthpb.RegisterDRAResourceHealthServer(d.server, d.health)
		healthv1alpha1.RegisterDRAResourceHealthServer(d.server, healthpb.V1ServerWrapper{Server: d.health})
	}
	go d.server.Serve(listener)
	if versions == nil {
		versions = []string{drapb.DRAPluginService}
	}
	d.plugin = plugins.Plugin{Name: d.name, Endpoint: path, Versions: versions, Socket: path + "-reg"}
	must(d.world.t, d.world.m.Register(d.world.t.Context(), d.plugin))
	d.world.until("the driver is connected", func() bool { return d.world.connected(d.plugin) })
}

// call records a call, and applies the fault of the test.
func (d *driver) call(ctx context.Context, method string, claims []*drapb.Claim) error {
	var names []string
	for _, c := range claims {
		names = append(names, c.Name)
	}
	d.mu.Lock()
	d.calls = append(d.calls, method+" "+strings.Join(names, ","))
	before := d.before
	d.mu.Unlock()
	if before != nil {
		return before(ctx, method)
	}
	return nil
}

func (d *driver) NodePrepareResources(ctx context.Context, req *drapb.NodePrepareResourcesRequest) (*drapb.NodePrepareResourcesResponse, error) {
	if err := d.call(ctx, "prepare", req.Claims); err != nil {
		return nil, err
	}
	res := &drapb.NodePrepareResourcesResponse{Claims: map[string]*drapb.NodePrepareResourceResponse{}}
	for _, c := range req.Claims {
		object, err := d.world.ResourceClaim(ctx, c.Namespace, c.Name)
		if err != nil || string(object.UID) != c.Uid {
			return nil, fmt.Errorf("claim %s: %w", c.Name, err)
		}
		answer := &drapb.NodePrepareResourceResponse{}
		for _, r := range object.Status.Allocation.Devices.Results {
			if r.Driver == d.name {
				id := fmt.Sprintf("%s/%s=%s", d.name, c.Name, strings.ReplaceAll(r.Request, "/", "_"))
				answer.Devices = append(answer.Devices, &drapb.Device{RequestNames: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device, CdiDeviceIds: []string{id}})
			}
		}
		res.Claims[c.Uid] = answer
		d.mu.Lock()
		d.prepared[c.Uid] = true
		d.mu.Unlock()
	}
	if d.answer != nil {
		d.answer(res)
	}
	return res, nil
}

func (d *driver) NodeUnprepareResources(ctx context.Context, req *drapb.NodeUnprepareResourcesRequest) (*drapb.NodeUnprepareResourcesResponse, error) {
	if err := d.call(ctx, "unprepare", req.Claims); err != nil {
		return nil, err
	}
	res := &drapb.NodeUnprepareResourcesResponse{Claims: map[string]*drapb.NodeUnprepareResourceResponse{}}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range req.Claims {
		delete(d.prepared, c.Uid)
		res.Claims[c.Uid] = &drapb.NodeUnprepareResourceResponse{}
	}
	return res, nil
}

// took returns the calls since the last time.
func (d *driver) took() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.calls
	d.calls = nil
	return out
}

// holds returns the number of claims that the driver has prepared.
func (d *driver) holds() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.prepared)
}

func (d *driver) fail(before func(context.Context, string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before = before
}

// world is a node with drivers, and an API in memory.
type world struct {
	t    *testing.T
	root string
	cfg  Config
	m    *Manager
	stop func()

	mu      sync.Mutex
	claims  map[string]*resourcev1.ResourceClaim
	deleted []string // selectors of ResourceSlices
	told    []string // pods the health of whose devices has changed
	down    error
}

func newWorld(t *testing.T) *world {
	root, err := os.MkdirTemp("", "dra") // t.TempDir is too long for the path of a socket
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(root) })
	w := &world{t: t, root: root, claims: map[string]*resourcev1.ResourceClaim{}}
	w.cfg = Config{Root: root, NodeName: "n", API: w, Log: slog.New(slog.DiscardHandler)}
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

// start starts a kubelet that knows only the disk.
func (w *world) start() {
	m, err := New(w.cfg)
	must(w.t, err)
	w.m = m
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error)
	go func() { done <- m.Run(ctx, w.tell) }()
	w.stop = func() {
		cancel()
		must(w.t, <-done)
	}
}

// restart starts the kubelet again. The drivers register again.
func (w *world) restart(drivers ...*driver) {
	w.stop()
	w.start()
	for _, d := range drivers {
		must(w.t, w.m.Register(w.t.Context(), d.plugin))
	}
}

func (w *world) driver(name string, versions ...string) *driver {
	w.t.Helper()
	d := &driver{name: name, world: w, prepared: map[string]bool{}}
	d.serve(name+".sock", versions...)
	w.t.Cleanup(func() { d.server.Stop() })
	return d
}

func (w *world) connected(p plugins.Plugin) bool {
	w.m.reg.Lock()
	defer w.m.reg.Unlock()
	for _, have := range w.m.registry.plugins[p.Name] {
		if have.Socket == p.Socket {
			return have.connected
		}
	}
	return false
}

// until waits for a condition that a goroutine brings about.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for range 2000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	w.t.Fatalf("not in time: %s", what)
}

// claim adds a claim of devices, as "request driver", for pods.
func (w *world) claim(name string, devices []string, pods ...string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for i, d := range devices {
		request, driver, _ := strings.Cut(d, " ")
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{Request: request, Driver: driver, Pool: "n", Device: fmt.Sprint("dev-", i)})
	}
	for _, pod := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod, UID: types.UID(pod)})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claims[name] = c
	return c
}

// pod returns a pod with an entry for each claim, all of which its container app uses.
func pod(uid string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod-" + uid, UID: types.UID(uid)}}
	app := corev1.Container{Name: "app"}
	for _, c := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: c, ResourceClaimName: &c})
		app.Resources.Claims = append(app.Resources.Claims, corev1.ResourceClaim{Name: c})
	}
	p.Spec.Containers = []corev1.Container{app}
	return p
}

func (w *world) devices(p *corev1.Pod) []string {
	w.t.Helper()
	ids, err := w.m.Devices(p, &p.Spec.Containers[0])
	must(w.t, err)
	return ids
}

// idle checks that no driver has prepared anything and that the checkpoint is empty.
func (w *world) idle(drivers ...*driver) {
	w.t.Helper()
	for _, d := range drivers {
		if n := d.holds(); n > 0 {
			w.t.Errorf("%s has prepared %d claims", d.name, n)
		}
	}
	claims, err := readState(w.m.path())
	if err != nil || len(claims) > 0 {
		w.t.Errorf("the checkpoint has %d claims: %v", len(claims), err)
	}
}

func (w *world) ResourceClaim(_ context.Context, _, name string) (*resourcev1.ResourceClaim, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down != nil {
		return nil, w.down
	}
	if c := w.claims[name]; c != nil {
		return c.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(resourcev1.Resource("resourceclaims"), name)
}

func (w *world) DeleteResourceSlices(_ context.Context, s fields.Selector) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down != nil {
		return w.down
	}
	w.deleted = append(w.deleted, s.String())
	return nil
}

func (w *world) deletions() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.deleted)
}

// fail makes the API fail.
func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = err
}

var errDown = errors.New("connection refused")

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v, want %q", err, text)
	}
}
