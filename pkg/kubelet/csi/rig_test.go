package csi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	jsonpatch "github.com/evanphx/json-patch/v5"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/intree"
	"podium/pkg/kubelet/csi"
	"podium/pkg/kubelet/csi/csitest"
	"podium/pkg/kubelet/plugins"
	"podium/pkg/kubelet/volumes"
	"podium/pkg/scheme"
)

const driverName = "disks.example.com"

const callTimeout = 5 * time.Second

// table is a table of mounts, which the driver and the kubelet share.
type table struct {
	mu     sync.Mutex
	points map[string]bool
}

func (t *table) Bind(_, target string, _ bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.points[target] = true
	return nil
}

func (t *table) Unmount(target string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.points, target)
	return nil
}

func (t *table) Mounted(target string) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.points[target], nil
}

func (t *table) Under(dir string) (out []string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := range t.points {
		if p == dir || strings.HasPrefix(p, dir+"/") {
			out = append(out, p)
		}
	}
	return out, nil
}

// mounter is the kubelet's view of a table.
type mounter struct{ *table }

func (mounter) Mount(_, _, _ string) error { return nil }
func (mounter) Bind(int, string) error     { return nil }

// world is a node with an API in memory and a driver on real sockets.
type world struct {
	t      *testing.T
	root   string
	mounts *table
	driver *csitest.Driver
	log    *slog.Logger

	// The kubelet, which restart replaces.
	csi     *csi.Driver
	volumes *volumes.Manager
	stop    func()

	mu       sync.Mutex
	object   *storagev1.CSIDriver
	claim    *corev1.PersistentVolumeClaim
	pv       *corev1.PersistentVolume
	secrets  map[string]*corev1.Secret
	node     *corev1.Node
	csiNode  *storagev1.CSINode
	attached map[string]string
	calls    []string
	requests map[string]any // the last one, by method
	patches  []string
	fault    func(ctx context.Context, method string) error
	fresh    int // tokens
}

func newWorld(t *testing.T, change ...func(*world)) *world {
	// Paths of sockets are short: t.TempDir has the name of the test.
	root, err := os.MkdirTemp("", "csi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	w := &world{
		t: t, root: root, mounts: &table{points: map[string]bool{}}, log: slog.New(slog.DiscardHandler),
		secrets: map[string]*corev1.Secret{}, requests: map[string]any{}, attached: map[string]string{},
		node:   &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node"}},
		object: &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: new(false)}},
		claim: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", UID: "claim"},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
		pv: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			ClaimRef:    &corev1.ObjectReference{Namespace: "default", Name: "data", UID: "claim"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driverName, VolumeHandle: "disk-1", VolumeAttributes: map[string]string{"kind": "fast"},
			}},
		}},
	}
	w.driver = &csitest.Driver{
		Name: driverName, NodeID: "machine-1", Dir: filepath.Join(root, "disks"), Mounts: w.mounts,
		Capabilities: []csitest.Capability{spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME},
		Before:       w.before,
	}
	for _, f := range change {
		f(w)
	}
	stop, err := w.driver.Serve(filepath.Join(root, "plugins", driverName, "csi.sock"), filepath.Join(root, "plugins_registry"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

// before records a call and applies the fault of the test.
func (w *world) before(ctx context.Context, method string, req any) error {
	w.mu.Lock()
	if method != "NodeGetCapabilities" && method != "NodeGetInfo" {
		w.calls = append(w.calls, method)
	}
	w.requests[method] = req
	fault := w.fault
	w.mu.Unlock()
	if fault != nil {
		return fault(ctx, method)
	}
	return nil
}

// start starts a kubelet that knows only the disk, and registers the driver.
func (w *world) start() {
	w.t.Helper()
	d, err := csi.New(csi.Config{Root: w.root, NodeName: "n", API: w, Node: nodeOf{w}, Mounter: mounter{w.mounts}, Events: noEvents{}, Log: w.log, CallTimeout: callTimeout,
		InTree: map[string]spec.NodeServer{intree.ISCSI: own{w: w}}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.csi = d
	w.volumes = volumes.New(volumes.Config{Root: w.root, Sources: w, Mounter: mounter{w.mounts}, Drivers: []volumes.Driver{d}})
	if err := d.Register(w.t.Context(), plugins.Plugin{Name: driverName, Endpoint: filepath.Join(w.root, "plugins", driverName, "csi.sock"), Versions: []string{"1.0.0"}}); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = d.Run(ctx)
	}()
	w.stop = func() {
		cancel()
		<-done
	}
}

func (w *world) restart() {
	w.stop()
	w.start()
}

func (w *world) pod(uid string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod-" + uid, UID: types.UID(uid)},
		Spec: corev1.PodSpec{
			ServiceAccountName: "robot",
			Containers:         []corev1.Container{{Name: "main", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}}},
		},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func (w *world) setUp(p *corev1.Pod) (volumes.Mount, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	return w.volumes.SetUp(ctx, p, &p.Spec.Volumes[0])
}

func (w *world) tearDown(uid string) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	return w.volumes.TearDown(ctx, types.UID(uid))
}

// took returns the calls since the last time.
func (w *world) took() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.calls
	w.calls = nil
	return out
}

// until waits for a condition that a goroutine of the kubelet brings about.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for range 2000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	w.t.Fatalf("not in time: %s\n%s", what, strings.Join(w.left(), "\n"))
}

// left returns the mounts, and the kubelet's files of pods and volumes.
func (w *world) left() (out []string) {
	points, _ := w.mounts.Under(w.root)
	out = append(out, points...)
	for _, dir := range []string{"pods", "plugins/kubernetes.io"} {
		_ = filepath.WalkDir(filepath.Join(w.root, dir), func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				out = append(out, path)
			}
			return nil
		})
	}
	slices.Sort(out)
	return out
}

// clean waits until nothing is left of any volume.
func (w *world) clean() {
	w.t.Helper()
	w.until("nothing is left", func() bool { return len(w.left()) == 0 && len(w.csi.InUse()) == 0 })
}

// nodeOf is the node's own object. A volume that the node uses is attached.
type nodeOf struct{ w *world }

func (n nodeOf) Check() {}
func (n nodeOf) Await(ctx context.Context, ok func(*corev1.Node) bool) error {
	n.w.mu.Lock()
	node := n.w.node.DeepCopy()
	n.w.mu.Unlock()
	node.Status.VolumesInUse = n.w.csi.InUse()
	for _, v := range node.Status.VolumesInUse {
		node.Status.VolumesAttached = append(node.Status.VolumesAttached, corev1.AttachedVolume{Name: v})
	}
	if ok(node) {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

type noEvents struct{}

func (noEvents) Event(scheme.Object, string, string, string) {}

func notFound(name string) error { return apierrors.NewNotFound(storagev1.Resource("x"), name) }

// The API.

func (w *world) ConfigMap(context.Context, string, string) (*corev1.ConfigMap, error) {
	return nil, notFound("")
}

func (w *world) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	if s := w.secrets[namespace+"/"+name]; s != nil {
		return s, nil
	}
	return nil, notFound(name)
}

func (w *world) Claim(context.Context, string, string) (*corev1.PersistentVolumeClaim, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.claim.DeepCopy(), nil
}

func (w *world) PersistentVolume(context.Context, string) (*corev1.PersistentVolume, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pv.DeepCopy(), nil
}

func (w *world) HoldVolume(context.Context, *corev1.PersistentVolume) error {
	return errors.New("the volume is not a directory of the node")
}

func (w *world) Token(_ context.Context, _, account string, req *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	w.fresh++
	req.Status = authenticationv1.TokenRequestStatus{
		Token:               fmt.Sprintf("%s for %s", account, strings.Join(req.Spec.Audiences, ",")),
		ExpirationTimestamp: metav1.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	return req, nil
}

func (w *world) CSIDriver(_ context.Context, name string) (*storagev1.CSIDriver, error) {
	if w.object == nil {
		return nil, notFound(name)
	}
	return w.object, nil
}

func (w *world) VolumeAttachment(_ context.Context, name string) (*storagev1.VolumeAttachment, error) {
	return &storagev1.VolumeAttachment{Status: storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"path": "/dev/x"}}}, nil
}

func (w *world) PatchClaimStatus(_ context.Context, _, _ string, patch []byte) (*corev1.PersistentVolumeClaim, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patches = append(w.patches, string(patch))
	if err := patchInto(w.claim, patch); err != nil {
		return nil, err
	}
	return w.claim.DeepCopy(), nil
}

func (w *world) GetNode(context.Context, string) (*corev1.Node, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.node.DeepCopy(), nil
}

func (w *world) PatchNode(_ context.Context, _ string, patch []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return patchInto(w.node, patch)
}

func patchInto[T any](obj *T, patch []byte) error {
	have, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	next, err := jsonpatch.MergePatch(have, patch)
	if err != nil {
		return err
	}
	var patched T
	if err := json.Unmarshal(next, &patched); err != nil {
		return err
	}
	*obj = patched
	return nil
}

func (w *world) GetCSINode(_ context.Context, name string) (*storagev1.CSINode, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.csiNode == nil {
		return nil, notFound(name)
	}
	return w.csiNode.DeepCopy(), nil
}

func (w *world) CreateCSINode(_ context.Context, n *storagev1.CSINode) error {
	return w.UpdateCSINode(context.Background(), n)
}

func (w *world) UpdateCSINode(_ context.Context, n *storagev1.CSINode) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.csiNode = n
	return nil
}
