package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri/crifake"
	"podium/pkg/kubelet/env"
	"podium/pkg/kubelet/images"
	"podium/pkg/kubelet/probes"
	"podium/pkg/kubelet/resources"
	"podium/pkg/kubelet/volumes"
	"podium/pkg/scheme"
)

// rig is a node: a fake runtime, an API in memory, and a Manager that can be
// restarted.
type rig struct {
	t       *testing.T
	runtime *crifake.Runtime
	api     *fakeAPI
	dir     string
	dial    probes.Dial
	tweak   func(*Config)

	unsynced bool // the test itself says that all pods are known

	manager *Manager
	stop    func()
}

func newRig(t *testing.T, cfg crifake.Config) *rig {
	t.Helper()
	if cfg.Images == nil {
		cfg.Images = []string{"app:1", "app:2"}
	}
	r := &rig{t: t, runtime: crifake.New(cfg), api: newFakeAPI(), dir: t.TempDir()}
	r.dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("connection refused") }
	return r
}

// start runs a Manager until stop, like a start of the kubelet.
func (r *rig) start() {
	ctx, cancel := context.WithCancel(context.Background())
	cfg := Config{
		RootDir: r.dir, LogsDir: r.dir + "/logs",
		API: r.api, Runtime: r.runtime, RuntimeName: "containerd", Images: r.runtime.ImageService(),
		Volumes: volumes.New(volumes.Config{Root: r.dir, Sources: r.api, Mounter: volumes.Unmounted{}}), Cgroups: resources.None{},
		Environment: func(ctx context.Context, req env.Request) ([]*runtimeapi.KeyValue, error) {
			return env.Make(ctx, req, r.api)
		},
		Secret: r.api.Secret, Handler: r.api.RuntimeHandler, ImageRecords: images.NewRecords(r.dir+"/image_manager", slog.New(slog.DiscardHandler)),
		Services: func() ([]*corev1.Service, bool) { return nil, true },
		Node:     testNode,
		HostIPs:  func() []string { return []string{"192.0.2.1"} },
		Probes: probes.Config{
			Check:  probes.Checker{Runtime: r.runtime, Dial: func(ctx context.Context, n, a string) (net.Conn, error) { return r.dial(ctx, n, a) }},
			Events: r.api, Log: slog.New(slog.DiscardHandler),
		},
		Events: r.api, Log: slog.New(slog.DiscardHandler),
		Options: Options{HostsFile: os.DevNull, ClusterDomain: "cluster.local", DrainTimeout: 5 * time.Second},
	}
	if testing.Verbose() {
		cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if r.tweak != nil {
		r.tweak(&cfg)
	}
	m := New(cfg)
	r.manager = m
	var done sync.WaitGroup
	done.Go(func() {
		if err := m.Run(ctx); err != nil {
			r.t.Errorf("Run: %v", err)
		}
	})
	r.api.listen(m.Update)
	if !r.unsynced {
		m.Synced()
	}
	r.stop = func() {
		r.api.listen(nil)
		cancel()
		done.Wait()
	}
}

// bubble runs a test in virtual time with a running kubelet.
func bubble(t *testing.T, cfg crifake.Config, f func(r *rig)) {
	t.Helper()
	bubbleWith(t, cfg, func(*rig) {}, f)
}

// bubbleWith calls prepare before the kubelet starts.
func bubbleWith(t *testing.T, cfg crifake.Config, prepare, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, cfg)
		prepare(r)
		r.start()
		defer func() { r.stop() }()
		f(r)
	})
}

// pass advances virtual time and waits until all goroutines are blocked.
func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) restart() {
	r.stop()
	r.start()
	synctest.Wait()
}

func (r *rig) pod(name string) *corev1.Pod {
	r.t.Helper()
	p, err := r.api.GetPod(context.Background(), "default", name)
	if err != nil {
		r.t.Fatalf("pod %s: %v", name, err)
	}
	return p
}

func (r *rig) gone(name string) bool {
	_, err := r.api.GetPod(context.Background(), "default", name)
	return apierrors.IsNotFound(err)
}

func (r *rig) container(pod, name string) crifake.Container {
	r.t.Helper()
	var last *crifake.Container
	for _, c := range r.runtime.Containers() {
		if c.Pod == pod && c.Name == name {
			last = &c
		}
	}
	if last == nil {
		r.t.Fatalf("no container %s/%s", pod, name)
	}
	return *last
}

// calls returns the runtime's calls that begin with one of the prefixes.
func (r *rig) calls(prefixes ...string) []string {
	var out []string
	for _, c := range r.runtime.Calls() {
		for _, p := range prefixes {
			if strings.HasPrefix(c, p) {
				out = append(out, c)
			}
		}
	}
	return out
}

func testNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{"disk": "ssd"}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
		}},
	}
}

// newPod returns a pod with the API's defaults and one container called app.
func newPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name), Generation: 1},
		Spec: corev1.PodSpec{
			NodeName: "node", RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: ptr(int64(30)),
			DNSPolicy:  corev1.DNSDefault,
			Containers: []corev1.Container{newContainer("app")},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func newContainer(name string) corev1.Container {
	return corev1.Container{
		Name: name, Image: "app:1", ImagePullPolicy: corev1.PullIfNotPresent,
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}
}

func ptr[T any](v T) *T { return &v }

// fakeAPI holds pods, ConfigMaps, Secrets and events in memory, with one listener.
type fakeAPI struct {
	mu         sync.Mutex
	pods       map[string]*corev1.Pod
	configMaps map[string]*corev1.ConfigMap
	revision   int
	events     []string
	log        []string // writes, as "patch name phase", "delete name"
	down       bool
	listener   func(old, pod *corev1.Pod)
}

func newFakeAPI() *fakeAPI {
	return &fakeAPI{pods: map[string]*corev1.Pod{}, configMaps: map[string]*corev1.ConfigMap{}}
}

var pods = schema.GroupResource{Resource: "pods"}

func (a *fakeAPI) listen(f func(old, pod *corev1.Pod)) {
	a.mu.Lock()
	a.listener = f
	var all []*corev1.Pod
	for _, p := range a.pods {
		all = append(all, p)
	}
	a.mu.Unlock()
	if f != nil {
		for _, p := range all {
			f(nil, p)
		}
	}
}

func (a *fakeAPI) putLocked(p *corev1.Pod) *corev1.Pod {
	old := a.pods[p.Name]
	a.revision++
	p.ResourceVersion = strconv.Itoa(a.revision)
	a.pods[p.Name] = p
	a.tellLocked(old, p)
	return p
}

func (a *fakeAPI) tellLocked(old, p *corev1.Pod) {
	if a.listener != nil {
		a.listener(old, p)
	}
}

func (a *fakeAPI) create(p *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p.CreationTimestamp = metav1.Now()
	a.putLocked(p)
}

func (a *fakeAPI) change(name string, f func(*corev1.Pod)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pods[name].DeepCopy()
	f(p)
	a.putLocked(p)
}

// deleteGracefully deletes a pod with a grace period.
func (a *fakeAPI) deleteGracefully(name string, grace int64) {
	a.change(name, func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr(metav1.Now()), ptr(grace)
	})
}

// drop deletes a pod without a grace period: the pod is gone at once.
func (a *fakeAPI) drop(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.pods[name]
	delete(a.pods, name)
	a.tellLocked(old, nil)
}

func (a *fakeAPI) writes() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.log...)
}

func (a *fakeAPI) eventsOf(reason string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	for _, e := range a.events {
		if strings.HasPrefix(e, reason+" ") {
			out = append(out, strings.TrimPrefix(e, reason+" "))
		}
	}
	return out
}

func (a *fakeAPI) EventOn(_ scheme.Object, _, _, reason, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, reason+" "+message)
}

var errDown = errors.New("connection refused")

func (a *fakeAPI) GetPod(_ context.Context, _, name string) (*corev1.Pod, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down {
		return nil, errDown
	}
	p := a.pods[name]
	if p == nil {
		return nil, apierrors.NewNotFound(pods, name)
	}
	return p, nil
}

func (a *fakeAPI) PatchStatus(_ context.Context, _, name string, patch []byte) (*corev1.Pod, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down {
		return nil, errDown
	}
	p := a.pods[name]
	if p == nil {
		return nil, apierrors.NewNotFound(pods, name)
	}
	var head struct{ Metadata struct{ UID types.UID } }
	if err := json.Unmarshal(patch, &head); err != nil {
		return nil, err
	}
	if head.Metadata.UID != p.UID {
		return nil, apierrors.NewConflict(pods, name, fmt.Errorf("uid is %s", p.UID))
	}
	old, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	data, err := strategicpatch.StrategicMergePatch(old, patch, corev1.Pod{})
	if err != nil {
		return nil, err
	}
	var patched corev1.Pod
	if err := json.Unmarshal(data, &patched); err != nil {
		return nil, err
	}
	changed := p.DeepCopy()
	changed.Status = patched.Status
	a.log = append(a.log, fmt.Sprintf("patch %s %s", name, changed.Status.Phase))
	return a.putLocked(changed), nil
}

func (a *fakeAPI) DeletePod(_ context.Context, _, name string, uid types.UID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down {
		return errDown
	}
	p := a.pods[name]
	if p == nil || p.UID != uid {
		return nil
	}
	a.log = append(a.log, "delete "+name)
	if len(p.Finalizers) > 0 {
		p = p.DeepCopy()
		p.DeletionGracePeriodSeconds = ptr(int64(0))
		a.putLocked(p)
		return nil
	}
	delete(a.pods, name)
	a.tellLocked(p, nil)
	return nil
}

func (a *fakeAPI) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if cm := a.configMaps[name]; cm != nil {
		return cm, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
}

// Claim and PersistentVolume know none: pods here have no claims.
func (a *fakeAPI) Claim(_ context.Context, _, name string) (*corev1.PersistentVolumeClaim, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), name)
}

func (a *fakeAPI) HoldVolume(context.Context, *corev1.PersistentVolume) error { return nil }

func (a *fakeAPI) PersistentVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("persistentvolumes"), name)
}

func (a *fakeAPI) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

// RuntimeHandler knows the RuntimeClass "vm".
func (a *fakeAPI) RuntimeHandler(_ context.Context, class string) (string, error) {
	if class != "vm" {
		return "", apierrors.NewNotFound(schema.GroupResource{Group: "node.k8s.io", Resource: "runtimeclasses"}, class)
	}
	return "kata", nil
}

func (a *fakeAPI) Token(context.Context, string, string, *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	return &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: "token"}}, nil
}
