package simulation

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"podium/pkg/kubelet/plugins"
)

const (
	cardDriver = "cards.example.com"
	cardNodes  = 3 // with devices
	cardsEach  = 2 // devices of such a node
	playersApp = "players"
)

// dealer is a driver of dynamic resource allocation on one node. It remembers what it has
// prepared when the kubelet dies, and fails as the container runtime does.
type dealer struct {
	drapb.UnimplementedDRAPluginServer
	registration.UnimplementedRegistrationServer

	w       *world
	node    string
	kubelet *daemon

	mu   sync.Mutex
	held map[string]types.UID // claims that are prepared, by device
}

// cards gives some nodes a driver with devices, and returns what uses them. The first node is
// left to preemption: a pod that fits there only would preempt, too.
func (w *world) cards(ctx context.Context) func(context.Context, *world) {
	var dealers []*dealer
	for _, n := range w.nodes[1 : 1+cardNodes] {
		d := &dealer{w: w, node: n.name, kubelet: w.daemons["kubelet on "+n.name], held: map[string]types.UID{}}
		dealers = append(dealers, d)
		dir := filepath.Join(n.dir, "plugins_registry")
		socket := filepath.Join(dir, "cards.sock")
		if err := os.MkdirAll(dir, 0o750); err != nil {
			w.t.Fatal(err)
		}
		listener := w.network.listen(socket)
		server := grpc.NewServer()
		registration.RegisterRegistrationServer(server, d)
		drapb.RegisterDRAPluginServer(server, d)
		w.running.Go(func() { _ = server.Serve(listener) })
		context.AfterFunc(ctx, server.Stop)
		if err := syscall.Mknod(socket, syscall.S_IFSOCK|0o600, 0); err != nil { // the kubelet looks for sockets
			w.t.Fatal(err)
		}
	}
	return func(ctx context.Context, w *world) { deal(ctx, w, dealers) }
}

// dialPlugin connects a kubelet to a driver.
func (w *world) dialPlugin(ctx context.Context, path string) (net.Conn, error) {
	return w.network.dial(ctx, "", net.JoinHostPort(path, "0"))
}

var _ plugins.Dialer = (*world)(nil).dialPlugin

func (d *dealer) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.DRAPlugin, Name: cardDriver, SupportedVersions: []string{drapb.DRAPluginService}}, nil
}

func (d *dealer) NotifyRegistrationStatus(context.Context, *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, nil
}

// disturbed makes a call, which may fail, be without effect, or kill the kubelet.
func disturbed[A any](d *dealer, op string, call func() (A, error)) (A, error) {
	var nothing A
	switch d.w.plan.pick("cards on "+d.node, op, d.w.plan.rates.runtime) {
	case lost:
		return nothing, status.Error(codes.Unavailable, "the simulation says so")
	case unheard:
		_, _ = call()
		return nothing, status.Error(codes.DeadlineExceeded, "context deadline exceeded")
	case crashBefore:
		d.kubelet.crash()
		return nothing, errDead
	case crashAfter:
		_, _ = call()
		d.kubelet.crash()
		return nothing, errDead
	}
	return call()
}

func (d *dealer) NodePrepareResources(ctx context.Context, in *drapb.NodePrepareResourcesRequest) (*drapb.NodePrepareResourcesResponse, error) {
	return disturbed(d, "NodePrepareResources", func() (*drapb.NodePrepareResourcesResponse, error) {
		out := &drapb.NodePrepareResourcesResponse{Claims: map[string]*drapb.NodePrepareResourceResponse{}}
		for _, c := range in.Claims {
			devices := d.w.journal.devicesOf(c.Uid)
			if len(devices) == 0 {
				return nil, status.Error(codes.NotFound, "the claim has no devices yet")
			}
			out.Claims[c.Uid] = d.prepare(c, devices)
		}
		return out, nil
	})
}

// prepare hands out devices. No two claims may have one at the same time.
func (d *dealer) prepare(c *drapb.Claim, devices []resourcev1.DeviceRequestAllocationResult) *drapb.NodePrepareResourceResponse {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &drapb.NodePrepareResourceResponse{}
	for _, r := range devices {
		if r.Pool != d.node {
			d.w.problem("%s: claim %s has %s of %s", d.node, c.Name, r.Device, r.Pool)
		}
		if other := d.held[r.Device]; other != "" && other != types.UID(c.Uid) {
			d.w.problem("%s: claims %s and %s have %s at once", d.node, other, c.Uid, r.Device)
		}
		d.held[r.Device] = types.UID(c.Uid)
		out.Devices = append(out.Devices, &drapb.Device{RequestNames: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device})
	}
	return out
}

func (d *dealer) NodeUnprepareResources(ctx context.Context, in *drapb.NodeUnprepareResourcesRequest) (*drapb.NodeUnprepareResourcesResponse, error) {
	return disturbed(d, "NodeUnprepareResources", func() (*drapb.NodeUnprepareResourcesResponse, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		out := &drapb.NodeUnprepareResourcesResponse{Claims: map[string]*drapb.NodeUnprepareResourceResponse{}}
		for _, c := range in.Claims {
			for device, uid := range d.held {
				if uid == types.UID(c.Uid) {
					delete(d.held, device)
				}
			}
			out.Claims[c.Uid] = &drapb.NodeUnprepareResourceResponse{}
		}
		return out, nil
	})
}

// deal runs a Job with more pods than there are devices, one that is deleted while its pods
// start, and pods that share a claim, which is freed and allocated again.
func deal(ctx context.Context, w *world, dealers []*dealer) {
	w.journal.onClaim(w.deviceOnce)
	w.journal.onPod(w.boundWithDevices)
	create(ctx, w, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "card"}})
	for _, d := range dealers {
		create(ctx, w, slice(d.node))
	}
	request := resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
		Name: "card", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "card"},
	}}}}
	create(ctx, w, &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "card"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: request},
	})
	create(ctx, w, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "table"}, Spec: request})

	players := deployment("default", playersApp, "web:1", 3)
	withClaim(&players.Spec.Template.Spec, corev1.PodResourceClaim{ResourceClaimName: new("table")})
	create(ctx, w, players)
	w.cardJob(ctx, "batch-cards", 10)
	w.cardJob(ctx, "batch-folded", 8)
	w.await(ctx, "players", func() bool { return w.ran(ctx, playersApp) == 3 })
	w.someTime(ctx, "folded cards", 20*time.Second)
	remove[*batchv1.Job](ctx, w, "default", "batch-folded", metav1.DeletePropagationBackground)
	w.scalePlayers(ctx, 0)
	w.await(ctx, "the table is free", func() bool { return w.journal.free("table") })
	w.scalePlayers(ctx, 2)
}

func (w *world) scalePlayers(ctx context.Context, n int32) {
	edit(ctx, w, "default", playersApp, func(p *appsv1.Deployment) { p.Spec.Replicas = &n })
}

func (w *world) cardJob(ctx context.Context, name string, pods int) {
	spec := jobSpec(name, "task:1", pods, pods)
	withClaim(&spec.Template.Spec, corev1.PodResourceClaim{ResourceClaimTemplateName: new("card")})
	create(ctx, w, job(name, spec))
}

func withClaim(spec *corev1.PodSpec, c corev1.PodResourceClaim) {
	c.Name = "card"
	spec.ResourceClaims = []corev1.PodResourceClaim{c}
	spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "card"}}
}

func slice(node string) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "cards-" + node}, Spec: resourcev1.ResourceSliceSpec{
		Driver: cardDriver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
	}}
	for i := range cardsEach {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprint("card-", i)})
	}
	return s
}

// devicesOf returns the devices of a claim.
func (j *journal) devicesOf(uid string) []resourcev1.DeviceRequestAllocationResult {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range j.claims {
		if string(c.UID) == uid && c.Status.Allocation != nil {
			return c.Status.Allocation.Devices.Results
		}
	}
	return nil
}

// free reports whether a claim has no devices.
func (j *journal) free(name string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range j.claims {
		if c.Name == name {
			return c.Status.Allocation == nil && len(c.Status.ReservedFor) == 0
		}
	}
	return false
}

// deviceOnce is a rule of claims: no two have a device, one without devices is reserved for no
// pod, and one with devices has the finalizer and keeps them until it is free.
func (w *world) deviceOnce(old, c *resourcev1.ResourceClaim) {
	if c == nil {
		if old.Status.Allocation != nil && len(old.Status.ReservedFor) > 0 {
			w.problem("claim %s is gone while %d pods use it", old.Name, len(old.Status.ReservedFor))
		}
		return
	}
	if c.Status.Allocation == nil {
		if len(c.Status.ReservedFor) > 0 {
			w.problem("claim %s is reserved without devices", c.Name)
		}
		return
	}
	if !slices.Contains(c.Finalizers, resourcev1.Finalizer) {
		w.problem("claim %s has devices and no finalizer", c.Name)
	}
	mine := deviceNames(c)
	if old != nil && old.Status.Allocation != nil && !slices.Equal(deviceNames(old), mine) {
		w.problem("claim %s: its devices %v became %v", c.Name, deviceNames(old), mine)
	}
	for _, other := range w.journal.claims {
		if other.UID == c.UID || other.Status.Allocation == nil {
			continue
		}
		for _, device := range deviceNames(other) {
			if slices.Contains(mine, device) {
				w.problem("claims %s and %s have %s", c.Name, other.Name, device)
			}
		}
	}
}

func deviceNames(c *resourcev1.ResourceClaim) (out []string) {
	for _, r := range c.Status.Allocation.Devices.Results {
		out = append(out, r.Pool+"/"+r.Device)
	}
	return out
}

// boundWithDevices is a rule of pods: when one gets a node, its claim has devices there and is
// reserved for it.
func (w *world) boundWithDevices(old, p *corev1.Pod) {
	if p == nil || len(p.Spec.ResourceClaims) == 0 || p.Spec.NodeName == "" || old == nil || old.Spec.NodeName != "" {
		return
	}
	for _, c := range w.journal.claims {
		reserved := slices.ContainsFunc(c.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == p.UID })
		if reserved && c.Status.Allocation != nil && strings.HasPrefix(deviceNames(c)[0], p.Spec.NodeName+"/") {
			return
		}
	}
	w.problem("pod %s is on %s without its device", p.Name, p.Spec.NodeName)
}

// claimLine describes a claim at rest.
func claimLine(c *resourcev1.ResourceClaim) string {
	return fmt.Sprintf("claim %s/%s: allocated %t, reserved for %d, finalizers %d, deleted %t", c.Namespace, c.Name,
		c.Status.Allocation != nil, len(c.Status.ReservedFor), len(c.Finalizers), c.DeletionTimestamp != nil)
}
