package devices_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/devices"
	"podium/pkg/kubelet/devices/devicetest"
)

const gpus = "example.com/gpu"

// node is a node in a bubble: sockets in memory, and a Manager that can be restarted.
type node struct {
	t   *testing.T
	dir string

	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
	reports   [][]types.UID

	*devices.Manager
	stop func()
}

// bubble runs a test in virtual time on a node with a running Manager.
func bubble(t *testing.T, f func(t *testing.T, n *node)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := &node{t: t, dir: dir, listeners: map[string]*bufconn.Listener{}}
		n.start()
		defer func() { n.stop() }()
		f(t, n)
	})
}

func (n *node) start() {
	n.Manager = devices.New(devices.Config{Root: n.dir, Log: slog.New(slog.DiscardHandler), Listen: n.listen, Dial: n.dial})
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	m := n.Manager
	done.Go(func() {
		if err := m.Run(ctx, n.changed); err != nil {
			n.t.Errorf("Run: %v", err)
		}
	})
	n.stop = func() {
		cancel()
		done.Wait()
	}
	synctest.Wait()
}

func (n *node) restart() {
	n.stop()
	n.start()
}

func (n *node) changed(pods []types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reports = append(n.reports, pods)
}

// reported returns the reports since the last time.
func (n *node) reported() [][]types.UID {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.reports
	n.reports = nil
	return out
}

func (n *node) listen(socket string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := bufconn.Listen(1 << 20)
	n.listeners[socket] = l
	return l, nil
}

func (n *node) dial(socket string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+socket, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		n.mu.Lock()
		l := n.listeners[addr]
		n.mu.Unlock()
		if l == nil {
			return nil, errors.New("no such file")
		}
		return l.DialContext(ctx)
	}))...)
}

func (n *node) socket(name string) string { return filepath.Join(n.dir, "device-plugins", name) }

// serve serves a plugin on a socket and registers it.
func (n *node) serve(p *devicetest.Plugin, socket string) (stop func(), err error) {
	l, _ := n.listen(n.socket(socket))
	stop = p.Serve(l)
	return stop, n.register(p, socket)
}

func (n *node) register(p *devicetest.Plugin, socket string) error {
	conn, err := n.dial(n.socket("kubelet.sock"))
	if err != nil {
		return err
	}
	defer conn.Close()
	err = p.Register(context.Background(), conn, socket)
	synctest.Wait()
	return err
}

// plugin serves a plugin that the kubelet must accept, until the test ends.
func (n *node) plugin(p *devicetest.Plugin) (stop func()) {
	n.t.Helper()
	stop, err := n.serve(p, "plugin.sock")
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		stop()
		for _, problem := range p.Problems() {
			n.t.Error(problem)
		}
	})
	return stop
}

// counts returns the capacity and the allocatable devices of each resource.
func (n *node) counts() string {
	synctest.Wait()
	capacity, allocatable := n.Capacity()
	var out []string
	for name, q := range capacity {
		a := allocatable[name]
		out = append(out, fmt.Sprintf("%s %s/%s", name, a.String(), q.String()))
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}

func (n *node) want(counts string) {
	n.t.Helper()
	if got := n.counts(); got != counts {
		n.t.Errorf("the node has %s, want %s", got, counts)
	}
}

// has returns the devices of a container.
func (n *node) has(pod, container string) string {
	var ids []string
	for _, d := range n.Devices(types.UID(pod), container) {
		ids = append(ids, d.ID)
	}
	return fmt.Sprint(ids)
}

func (n *node) wantDevices(pod, container, ids string) {
	n.t.Helper()
	if got := n.has(pod, container); got != ids {
		n.t.Errorf("%s of %s has %s, want %s", container, pod, got, ids)
	}
}

func (n *node) allocate(pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	return n.Allocate(ctx, pod)
}

func (n *node) mustAllocate(pods ...*corev1.Pod) {
	n.t.Helper()
	for _, p := range pods {
		if err := n.allocate(p); err != nil {
			n.t.Fatalf("allocate for %s: %v", p.Name, err)
		}
	}
}

// pod returns a pod with a container of the name main that wants devices.
func pod(name string, gpuCount int64, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{container("main", gpuCount)}},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func container(name string, gpuCount int64) corev1.Container {
	list := corev1.ResourceList{gpus: *resource.NewQuantity(gpuCount, resource.DecimalSI), corev1.ResourceCPU: resource.MustParse("1")}
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Limits: list, Requests: list}}
}

func initContainers(list ...corev1.Container) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.InitContainers = list }
}

func sidecar(c corev1.Container) corev1.Container {
	c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return c
}
