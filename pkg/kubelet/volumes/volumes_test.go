package volumes_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/volumes"
	"podium/pkg/volumebinding"
)

// api implements Sources in memory.
type api struct {
	mu         sync.Mutex
	down       error
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
	claims     map[string]*corev1.PersistentVolumeClaim
	volumes    map[string]*corev1.PersistentVolume
	reads      int
	now        func() time.Time
	tokens     int
}

func (a *api) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reads++
	if a.down != nil {
		return nil, a.down
	}
	if cm, ok := a.configMaps[name]; ok {
		return cm, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), name)
}

func (a *api) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reads++
	if a.down != nil {
		return nil, a.down
	}
	if s, ok := a.secrets[name]; ok {
		return s, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
}

func (a *api) Claim(_ context.Context, _, name string) (*corev1.PersistentVolumeClaim, error) {
	if c, ok := a.claims[name]; ok {
		return c, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), name)
}

func (a *api) HoldVolume(_ context.Context, v *corev1.PersistentVolume) error {
	held := v.DeepCopy()
	held.Finalizers = append(held.Finalizers, volumebinding.LocalPath)
	a.volumes[v.Name] = held
	return nil
}

func (a *api) PersistentVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	if v, ok := a.volumes[name]; ok {
		return v, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("persistentvolumes"), name)
}

func (a *api) Token(_ context.Context, _, sa string, req *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down != nil {
		return nil, a.down
	}
	a.tokens++
	out := req.DeepCopy()
	out.Status.Token = fmt.Sprintf("%s/%s/%v/%s#%d", sa, req.Spec.BoundObjectRef.UID, req.Spec.Audiences, time.Duration(*req.Spec.ExpirationSeconds)*time.Second, a.tokens)
	out.Status.ExpirationTimestamp = metav1.NewTime(a.now().Add(time.Duration(*req.Spec.ExpirationSeconds) * time.Second))
	return out, nil
}

// mounts is a Mounter in memory.
type mounts struct {
	mu     sync.Mutex
	points []string
	kind   map[string]string
	fail   error
}

func (m *mounts) Mount(fsType, target, options string) error {
	return m.add(target, fsType+" "+options)
}
func (m *mounts) Bind(fd int, target string) error {
	from, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	return errors.Join(err, m.add(target, "bind "+from))
}
func (m *mounts) add(target, kind string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kind == nil {
		m.kind = map[string]string{}
	}
	m.points = append(m.points, target)
	m.kind[target] = kind
	return nil
}
func (m *mounts) Unmount(target string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	for i, p := range m.points {
		if p == target {
			m.points = append(m.points[:i], m.points[i+1:]...)
			return nil
		}
	}
	return fs.ErrNotExist
}
func (m *mounts) Under(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for i := len(m.points) - 1; i >= 0; i-- {
		if p := m.points[i]; p == dir || strings.HasPrefix(p, dir+"/") {
			out = append(out, p)
		}
	}
	return out, nil
}

// node is a node's disk with its manager.
type node struct {
	*volumes.Manager
	api    *api
	mounts *mounts
	root   string
	clock  time.Time
}

func newNode(t *testing.T) *node {
	n := &node{root: t.TempDir(), mounts: &mounts{}, clock: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)}
	now := func() time.Time { return n.clock }
	n.api = &api{now: now, configMaps: map[string]*corev1.ConfigMap{}, secrets: map[string]*corev1.Secret{}}
	n.restart()
	return n
}

// restart replaces the manager; only the disk remains.
func (n *node) restart() {
	n.Manager = volumes.New(volumes.Config{Root: n.root, Sources: n.api, Mounter: n.mounts, Now: func() time.Time { return n.clock },
		Node: func() *corev1.Node {
			return &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("4Gi")}}}
		}})
}

// setUp sets up every volume that a container of the pod mounts, and returns the
// first error.
func setUp(ctx context.Context, m *volumes.Manager, pod *corev1.Pod) (map[string]volumes.Mount, error) {
	mounts := map[string]volumes.Mount{}
	for _, v := range volumes.Mounted(pod) {
		mount, err := m.SetUp(ctx, pod, v)
		if err != nil {
			return nil, err
		}
		mounts[v.Name] = mount
	}
	return mounts, nil
}

func (n *node) SetUp(ctx context.Context, pod *corev1.Pod) (map[string]volumes.Mount, error) {
	return setUp(ctx, n.Manager, pod)
}

// Refresh refreshes the pod's volumes, which must be ready.
func (n *node) Refresh(ctx context.Context, pod *corev1.Pod) error {
	_, err := n.SetUp(ctx, pod)
	return err
}

func pod(sources ...corev1.VolumeSource) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid-1",
		Labels: map[string]string{"b": "2", "a": "1"}, Annotations: map[string]string{"note": "two\nlines"}},
		Spec: corev1.PodSpec{ServiceAccountName: "sa", Containers: []corev1.Container{{Name: "c"}}}}
	for i, s := range sources {
		name := fmt.Sprintf("v%d", i)
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: s})
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	return p
}

func ptr[T any](v T) *T { return &v }

func configMap(name string, items ...corev1.KeyToPath) corev1.VolumeSource {
	return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Items: items}}
}

// visible returns what a container sees: "path mode content" of every file whose name
// does not start with "..", following links.
func visible(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	var walk func(rel string)
	walk = func(rel string) {
		entries, err := os.ReadDir(filepath.Join(dir, rel))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			p := filepath.Join(rel, e.Name())
			if strings.HasPrefix(e.Name(), "..") {
				continue
			}
			info, err := os.Stat(filepath.Join(dir, p))
			if err != nil {
				t.Fatal(err)
			}
			if info.IsDir() {
				walk(p)
				continue
			}
			data, err := os.ReadFile(filepath.Join(dir, p))
			if err != nil {
				t.Fatal(err)
			}
			out[p] = fmt.Sprintf("%04o %s", info.Mode().Perm(), data)
		}
	}
	walk("")
	return out
}

func TestContents(t *testing.T) {
	long := int64(7200)
	yes := true
	tests := map[string]struct {
		reason  string
		source  corev1.VolumeSource
		want    map[string]string
		wantErr string
	}{
		"ConfigMap": {
			reason: "text and bytes, default mode",
			source: configMap("c"), want: map[string]string{"a": "0644 1", "b": "0644 2", "bin": "0644 \x00\xff"},
		},
		"ConfigMapItems": {
			reason: "only the items, where they want to be, with their mode",
			source: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}, DefaultMode: ptr(int32(0o400)),
				Items: []corev1.KeyToPath{{Key: "a", Path: "deep/er/x"}, {Key: "b", Path: "deep/y", Mode: ptr(int32(0o751))}}}},
			want: map[string]string{"deep/er/x": "0400 1", "deep/y": "0751 2"},
		},
		"MissingKey": {reason: "an item must exist", source: configMap("c", corev1.KeyToPath{Key: "zz", Path: "z"}),
			wantErr: `MountVolume.SetUp failed for volume "v0" : configmap references non-existent config key: zz`},
		"MissingConfigMap": {reason: "the pod waits and the event says for what", source: configMap("gone"),
			wantErr: `MountVolume.SetUp failed for volume "v0" : configmap "gone" not found`},
		"OptionalConfigMap": {reason: "an empty volume",
			source: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "gone"}, Optional: &yes}}, want: map[string]string{}},
		"OptionalKey": {reason: "the key may be missing, too",
			source: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s", Optional: &yes,
				Items: []corev1.KeyToPath{{Key: "zz", Path: "z"}, {Key: "k", Path: "k"}}}}, want: map[string]string{"k": "0644 secret"}},
		"MissingSecret": {reason: "as for ConfigMaps", source: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "gone"}},
			wantErr: `MountVolume.SetUp failed for volume "v0" : secret "gone" not found`},
		"MissingSecretKey": {reason: "as for ConfigMaps", source: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s", Items: []corev1.KeyToPath{{Key: "q", Path: "q"}}}},
			wantErr: `MountVolume.SetUp failed for volume "v0" : references non-existent secret key: q`},
		"Downward": {
			reason: "labels, annotations, resources; limits that are not set are the node's",
			source: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
				{Path: "notes", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations"}, Mode: ptr(int32(0o400))},
				{Path: "cpu", ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "c", Resource: "limits.cpu"}},
				{Path: "mem", ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "c", Resource: "limits.memory", Divisor: resource.MustParse("1Mi")}},
			}}},
			want: map[string]string{"labels": "0644 a=\"1\"\nb=\"2\"", "notes": "0400 note=\"two\\nlines\"", "cpu": "0644 2", "mem": "0644 4096"},
		},
		"Projected": {
			reason: "all sources in one directory",
			source: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: ptr(int32(0o440)), Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}, Items: []corev1.KeyToPath{{Key: "a", Path: "a"}}}},
				{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}},
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}},
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: "vault", ExpirationSeconds: &long}},
			}}},
			want: map[string]string{"a": "0440 1", "k": "0440 secret", "name": "0440 p", "token": "0440 sa/uid-1/[vault]/2h0m0s#1"},
		},
		"ProjectedMissing": {
			reason: "everything that is missing is told",
			source: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "x"}}},
				{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "y"}}}}}},
			wantErr: `MountVolume.SetUp failed for volume "v0" : [configmap "x" not found, secret "y" not found]`,
		},
		"Escape": {reason: "validation missed it: it still does not leave the volume", source: configMap("c", corev1.KeyToPath{Key: "a", Path: "x/../../y"}),
			wantErr: `MountVolume.SetUp failed for volume "v0" : invalid path: must not start with '..': ../y`},
		"Unknown": {reason: "a source that is not built is refused", source: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}},
			wantErr: `MountVolume.SetUp failed for volume "v0" : no volume plugin matched`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.api.configMaps["c"] = &corev1.ConfigMap{Data: map[string]string{"a": "1", "b": "2"}, BinaryData: map[string][]byte{"bin": {0, 255}}}
			n.api.secrets["s"] = &corev1.Secret{Data: map[string][]byte{"k": []byte("secret")}}
			got, err := n.SetUp(t.Context(), pod(tc.source))
			if tc.wantErr != "" {
				if err == nil || err.Error() != tc.wantErr {
					t.Fatalf("%s:\n got %v\nwant %s", tc.reason, err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, visible(t, got["v0"].HostPath)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if !got["v0"].ReadOnly {
				t.Error("containers must not write to it")
			}
		})
	}
}

func TestContentsFollowTheirSources(t *testing.T) {
	n := newNode(t)
	yes := true
	src := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}, Optional: &yes}}
	p := pod(src)
	got, err := n.SetUp(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	dir := got["v0"].HostPath
	for _, step := range []struct {
		reason string
		data   map[string]string
		want   map[string]string
	}{
		{"it appears", map[string]string{"a": "1"}, map[string]string{"a": "0644 1"}},
		{"it changes and grows", map[string]string{"a": "2", "b": "x"}, map[string]string{"a": "0644 2", "b": "0644 x"}},
		{"a key goes", map[string]string{"b": "x"}, map[string]string{"b": "0644 x"}},
		{"it is deleted", nil, map[string]string{}},
	} {
		delete(n.api.configMaps, "c")
		if step.data != nil {
			n.api.configMaps["c"] = &corev1.ConfigMap{Data: step.data}
		}
		if err := n.Refresh(t.Context(), p); err != nil {
			t.Fatalf("%s: %v", step.reason, err)
		}
		if diff := cmp.Diff(step.want, visible(t, dir)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.reason, diff)
		}
		if sets, _ := filepath.Glob(filepath.Join(dir, "..2*")); len(sets) != 1 {
			t.Errorf("%s: %d sets on disk", step.reason, len(sets))
		}
	}
	before, _ := os.Readlink(filepath.Join(dir, "..data"))
	if err := n.Refresh(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.Readlink(filepath.Join(dir, "..data")); after != before {
		t.Error("nothing changed, yet the set was written anew")
	}
}

func TestImmutableSourcesAreReadOnce(t *testing.T) {
	n := newNode(t)
	yes := true
	n.api.configMaps["c"] = &corev1.ConfigMap{Immutable: &yes, Data: map[string]string{"a": "1"}}
	p := pod(configMap("c"))
	if _, err := n.SetUp(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := n.Refresh(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if n.api.reads != 1 {
		t.Errorf("%d reads", n.api.reads)
	}
}

func TestAnOutageDoesNotTakeContentsAway(t *testing.T) {
	for name, source := range map[string]corev1.VolumeSource{
		"configMap": configMap("c"),
		"projected": {Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}},
		}}},
	} {
		t.Run(name, func(t *testing.T) { testOutage(t, source) })
	}
}

func testOutage(t *testing.T, source corev1.VolumeSource) {
	n := newNode(t)
	n.api.configMaps["c"] = &corev1.ConfigMap{Data: map[string]string{"a": "1"}}
	p := pod(source)
	if _, err := n.SetUp(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	n.restart()
	n.api.down = errors.New("connection refused")
	got, err := n.SetUp(t.Context(), p)
	if err != nil {
		t.Fatalf("the volume is on disk, but: %v", err)
	}
	if diff := cmp.Diff(map[string]string{"a": "0644 1"}, visible(t, got["v0"].HostPath)); diff != "" {
		t.Error(diff)
	}
	fresh := pod(source)
	fresh.UID = "uid-2"
	if _, err := n.SetUp(t.Context(), fresh); err == nil {
		t.Error("a volume that was never filled is ready")
	}
	n.api.down, n.api.configMaps = nil, nil
	n.restart()
	if _, err := n.SetUp(t.Context(), p); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("an answer that the ConfigMap does not exist counts as an outage: %v", err)
	}
}

// slowAPI answers when the context ends.
type slowAPI struct{ api }

func (a *slowAPI) ConfigMap(ctx context.Context, _, _ string) (*corev1.ConfigMap, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A call that waits for another one returns when its context ends.
func TestWaitingForAnotherCallEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := volumes.New(volumes.Config{Root: t.TempDir(), Sources: &slowAPI{}, Mounter: &mounts{}})
		ctx, cancel := context.WithCancel(t.Context())
		p := pod(configMap("c"))
		ended := make(chan error)
		go func() {
			_, err := setUp(ctx, m, p)
			ended <- err
		}()
		synctest.Wait()
		short, done := context.WithTimeout(t.Context(), time.Second)
		defer done()
		if err := m.TearDown(short, p.UID); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("TearDown: %v", err)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("SetUp: %v", err)
		}
		if err := m.TearDown(t.Context(), p.UID); err != nil {
			t.Error(err)
		}
	})
}

func TestTokenRotation(t *testing.T) {
	n := newNode(t)
	hour := int64(3600)
	p := pod(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &hour}}}}})
	got, err := n.SetUp(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	start := n.clock
	for _, step := range []struct {
		reason string
		at     time.Duration
		down   bool
		want   int
	}{
		{"young", 40 * time.Minute, false, 1},
		{"past four fifths", 48 * time.Minute, false, 2},
		{"the new one is young", 60 * time.Minute, false, 2},
		{"due, but the apiserver is away: the old one is good until it expires", 47*time.Minute + 50*time.Minute, true, 2},
		{"back", 47*time.Minute + 55*time.Minute, false, 3},
	} {
		n.clock = start.Add(step.at)
		n.api.down = nil
		if step.down {
			n.api.down = errors.New("no route to host")
		}
		if err := n.Refresh(t.Context(), p); err != nil {
			t.Fatalf("%s: %v", step.reason, err)
		}
		text, _ := os.ReadFile(filepath.Join(got["v0"].HostPath, "token"))
		if !strings.HasSuffix(string(text), fmt.Sprintf("#%d", step.want)) {
			t.Errorf("%s: after %v the token is %s, want number %d", step.reason, step.at, text, step.want)
		}
	}
	n.clock, n.api.down = n.clock.Add(2*time.Hour), errors.New("no route to host")
	if err := n.Refresh(t.Context(), p); err == nil {
		t.Error("an expired token counts as good")
	}
}

// The clock of the node is set, or differs from that of the API server, which has issued the
// token: pods always have a token that is good there.
func TestTokensWhenTheClockIsSet(t *testing.T) {
	n := newNode(t)
	n.api.now = func() time.Time { return n.clock.Add(-time.Hour) }
	p := pod(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}})
	if _, err := n.SetUp(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		reason string
		by     time.Duration
		want   int
	}{
		{"the server's clock is an hour behind, so what it issues looks expired", time.Minute, 1},
		{"an hour forward", time.Hour, 2},
		{"an hour back: how old the token is is not known", -time.Hour, 3},
		{"and now it is", time.Minute, 3},
	} {
		n.clock = n.clock.Add(step.by)
		if err := n.Refresh(t.Context(), p); err != nil {
			t.Fatalf("%s: %v", step.reason, err)
		}
		if n.api.tokens != step.want {
			t.Errorf("%s: %d tokens were issued, want %d", step.reason, n.api.tokens, step.want)
		}
	}
}

func TestEmptyDir(t *testing.T) {
	n := newNode(t)
	p := pod(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: ptr(resource.MustParse("1Mi"))}},
		corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}})
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "unused", VolumeSource: configMap("gone")})
	got, err := n.SetUp(t.Context(), p)
	if err != nil {
		t.Fatalf("a volume that nobody mounts is in the way: %v", err)
	}
	disk, limited, free := got["v0"].HostPath, got["v1"].HostPath, got["v2"].HostPath
	want := filepath.Join(n.root, "pods/uid-1/volumes/kubernetes.io~empty-dir/v0")
	if disk != want {
		t.Errorf("at %s, want %s", disk, want)
	}
	if diff := cmp.Diff(map[string]string{limited: "tmpfs mode=0777,size=1048576,noswap", free: "tmpfs mode=0777,size=4294967296,noswap"}, n.mounts.kind); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	if info, _ := os.Stat(disk); info.Mode().Perm() != 0o777 {
		t.Errorf("mode %v", info.Mode())
	}
	// Changes by containers survive a restart.
	os.WriteFile(filepath.Join(disk, "data"), []byte("kept"), 0o600)
	os.Chmod(disk, 0o700)
	n.restart()
	if _, err := n.SetUp(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(disk); info.Mode().Perm() != 0o700 || len(n.mounts.points) != 2 {
		t.Errorf("set up twice: mode %v, mounts %v", info.Mode(), n.mounts.points)
	}
	// After a reboot the memory is empty.
	n.mounts.points = nil
	n.restart()
	if _, err := n.SetUp(t.Context(), p); err != nil || len(n.mounts.points) != 2 {
		t.Errorf("after a reboot: %v, mounts %v", err, n.mounts.points)
	}
}

// A volume of huge pages has those of its medium, or those that the containers ask for.
func TestHugePages(t *testing.T) {
	n := newNode(t)
	volume := func(medium corev1.StorageMedium, uid types.UID, names ...corev1.ResourceName) (options string, _ error) {
		limit := resource.MustParse("8Mi")
		p := pod(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium, SizeLimit: &limit}})
		p.UID = uid
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{}
		for _, name := range names {
			p.Spec.Containers[0].Resources.Limits[name] = limit
		}
		got, err := n.SetUp(t.Context(), p)
		return n.mounts.kind[got["v0"].HostPath], err
	}
	for i, row := range []struct {
		medium corev1.StorageMedium
		names  []corev1.ResourceName
		want   string // "": refused
	}{
		{"HugePages-2Mi", nil, "hugetlbfs mode=0777,pagesize=2097152,size=8388608"},
		{"HugePages", []corev1.ResourceName{"hugepages-2Mi"}, "hugetlbfs mode=0777,pagesize=2097152,size=8388608"},
		{"HugePages", []corev1.ResourceName{"hugepages-2Mi", "hugepages-4Mi"}, ""},
		{"HugePages", nil, ""},
		{"HugePages-big", nil, ""},
		{"Paper", nil, ""},
	} {
		got, err := volume(row.medium, types.UID(fmt.Sprint("huge-", i)), row.names...)
		if got != row.want || (err == nil) != (row.want != "") {
			t.Errorf("%s of %v: %q, %v", row.medium, row.names, got, err)
		}
	}
}

func TestFSGroupOwnsTheVolume(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("changing groups needs root")
	}
	n := newNode(t)
	n.api.secrets["s"] = &corev1.Secret{Data: map[string][]byte{"k": []byte("x")}}
	p := pod(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s", DefaultMode: ptr(int32(0o440))}},
		corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}})
	p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr(int64(1001)), RunAsUser: ptr(int64(1000))}
	got, err := n.SetUp(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		got["v0"].HostPath:                          "dgrwxrwxrwx 0:1001",
		got["v1"].HostPath:                          "dgrwxrwxrwx 0:1001",
		filepath.Join(got["v1"].HostPath, "k"):      "-r--r----- 0:1001",
		filepath.Join(got["v1"].HostPath, "..data"): "dgrwxr-xr-x 0:1001",
		filepath.Join(got["v2"].HostPath, "token"):  "-rw-r----- 1000:1001",
	} {
		if have := describe(t, path); have != want {
			t.Errorf("%s is %s, want %s", path, have, want)
		}
	}
}

func TestTearDownNeedsOnlyTheDisk(t *testing.T) {
	n := newNode(t)
	n.api.secrets["s"] = &corev1.Secret{Data: map[string][]byte{"k": []byte("x")}}
	outside := t.TempDir()
	precious := filepath.Join(outside, "precious")
	os.WriteFile(precious, []byte("!"), 0o600)
	p := pod(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}},
		corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: outside}})
	got, err := n.SetUp(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	empty := got["v0"]
	os.Symlink(outside, filepath.Join(empty.HostPath, "link"))
	deep := empty.HostPath
	for range 300 {
		deep = filepath.Join(deep, "d")
	}
	if err := os.MkdirAll(deep, 0o777); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(deep, "f"), nil, 0o600)
	for _, sub := range []string{"d/d", "new"} {
		if _, err := n.SubPath(t.Context(), empty, sub); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.SubPath(t.Context(), got["v2"], "precious"); err != nil {
		t.Fatal(err)
	}
	hosts := filepath.Join(n.root, "pods/uid-1/etc-hosts")
	os.WriteFile(hosts, nil, 0o600)

	n.restart()
	if uids, err := n.Orphans(); err != nil || len(uids) != 1 || uids[0] != "uid-1" {
		t.Fatalf("orphans %v, %v", uids, err)
	}
	n.mounts.fail = errors.New("busy")
	if err := n.TearDown(t.Context(), "uid-1"); err == nil {
		t.Fatal("a mount that stays is not an error")
	}
	n.mounts.fail = nil
	for range 2 {
		if err := n.TearDown(t.Context(), "uid-1"); err != nil {
			t.Fatal(err)
		}
	}
	if len(n.mounts.points) > 0 {
		t.Errorf("still mounted: %v", n.mounts.points)
	}
	if uids, _ := n.Orphans(); len(uids) > 0 {
		t.Errorf("orphans %v", uids)
	}
	left, _ := os.ReadDir(filepath.Join(n.root, "pods/uid-1"))
	if len(left) != 1 || left[0].Name() != "etc-hosts" {
		t.Errorf("left in the pod's directory: %v", left)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Errorf("the node's file is gone: %v", err)
	}
}

func TestUIDsAreDirectoryNames(t *testing.T) {
	n := newNode(t)
	for _, uid := range []types.UID{"", ".", "..", "a/b", "../x", "a\x00b"} {
		p := pod(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
		p.UID = uid
		if _, err := n.SetUp(t.Context(), p); err == nil {
			t.Errorf("set up %q", uid)
		}
		if err := n.TearDown(t.Context(), uid); err == nil {
			t.Errorf("tore down %q", uid)
		}
	}
}

func TestHostPathTypes(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	os.WriteFile(file, nil, 0o600)
	gone := func(name string) string { return filepath.Join(dir, name) }
	for _, tc := range []struct {
		path  string
		kind  corev1.HostPathType
		want  string // after "hostPath type check failed: PATH"
		after string
	}{
		{gone("x"), corev1.HostPathUnset, "", ""},
		{gone("x"), corev1.HostPathDirectory, " is not a directory", ""},
		{gone("made"), corev1.HostPathDirectoryOrCreate, "", "drwxr-xr-x"},
		{file, corev1.HostPathDirectoryOrCreate, " is not a directory", ""},
		{gone("f"), corev1.HostPathFileOrCreate, "", "-rw-r--r--"},
		{gone("g"), corev1.HostPathFile, " is not a file", ""},
		{dir, corev1.HostPathFileOrCreate, " is not a file", ""},
		{file, corev1.HostPathFile, "", ""},
		{file, corev1.HostPathSocket, " is not a socket file", ""},
		{"/dev/null", corev1.HostPathCharDev, "", ""},
		{"/dev/null", corev1.HostPathBlockDev, " is not a block device", ""},
		{file, corev1.HostPathCharDev, " is not a character device", ""},
	} {
		n := newNode(t)
		_, err := n.SetUp(t.Context(), pod(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: tc.path, Type: &tc.kind}}))
		text := ""
		if err != nil {
			_, text, _ = strings.Cut(err.Error(), "hostPath type check failed: "+tc.path)
		}
		if text != tc.want || (err == nil) != (tc.want == "") {
			t.Errorf("%s as %q: %v, want %q", tc.path, tc.kind, err, tc.want)
		}
		if tc.after != "" {
			if info, err := os.Stat(tc.path); err != nil || info.Mode().String() != tc.after {
				t.Errorf("%s as %q is %v, %v", tc.path, tc.kind, info, err)
			}
		}
	}
}

func describe(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	uid, gid := owner(info)
	return fmt.Sprintf("%v %d:%d", info.Mode(), uid, gid)
}

func TestUsageOfVolumesOnDisk(t *testing.T) {
	n := newNode(t)
	empty := func(medium corev1.StorageMedium) corev1.VolumeSource {
		return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium, SizeLimit: ptr(resource.MustParse("1Mi"))}}
	}
	p := pod(empty(""), empty(corev1.StorageMediumMemory))
	if volumes.SizeLimit(&p.Spec.Volumes[1]) != nil {
		t.Error("the kernel holds a volume in memory to its limit")
	}
	if limit := volumes.SizeLimit(&p.Spec.Volumes[0]); limit == nil || limit.String() != "1Mi" {
		t.Errorf("the limit on disk is %v", limit)
	}
	got, err := n.SetUp(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	dir := got["v0"].HostPath
	write := func(name string, size int) { os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600) }
	check := func(reason string, low, high int64) {
		t.Helper()
		used, err := n.Usage(t.Context(), p)
		if _, memory := used["v1"]; err != nil || memory || used["v0"] < low || used["v0"] > high {
			t.Errorf("%s: %v, %v; want v0 between %d and %d", reason, used, err, low, high)
		}
	}
	write("a", 700<<10)
	os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "again"))
	os.Symlink("/", filepath.Join(dir, "everything"))
	check("links take no space", 700<<10, 800<<10)
	write("b", 700<<10)
	check("two files", 1400<<10, 1500<<10)
	os.Remove(filepath.Join(dir, "b"))
	f, _ := os.Create(filepath.Join(dir, "sparse"))
	f.Truncate(1 << 30)
	f.Close()
	check("holes take no space", 700<<10, 800<<10)
}
