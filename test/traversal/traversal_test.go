package traversal

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client/access"
	"podium/pkg/kubelet/logs"
	"podium/pkg/kubelet/server"
	"podium/pkg/kubelet/volumes"
)

// tries is the number of paths in each of the tests below.
const tries = 500

const secret = "2026-01-02T15:04:05Z stdout F root's secret\n"

// world is a directory to stay in, and one beside it that must not be reached.
type world struct {
	inside, outside string
	before          map[string]string // content of outside
}

// newWorld creates the links that a container could create in its volume.
func newWorld(t testing.TB) *world {
	t.Helper()
	top := t.TempDir()
	w := &world{inside: filepath.Join(top, "inside"), outside: filepath.Join(top, "outside")}
	up := "../../../../../../../../../.."
	for _, err := range []error{
		os.MkdirAll(filepath.Join(w.inside, "a", "b"), 0o755), os.MkdirAll(w.outside, 0o755),
		os.WriteFile(filepath.Join(w.outside, "secret"), []byte(secret), 0o600),
		os.WriteFile(filepath.Join(w.inside, "file"), []byte("open"), 0o600),
		os.Symlink(w.outside, filepath.Join(w.inside, "absolute")),
		os.Symlink("../outside", filepath.Join(w.inside, "up")),
		os.Symlink(up+w.outside, filepath.Join(w.inside, "far-up")),
		os.Symlink("../../outside/secret", filepath.Join(w.inside, "a", "deep")),
		os.Symlink("a/deep", filepath.Join(w.inside, "chain")),
		os.Symlink("loop", filepath.Join(w.inside, "loop")),
		os.Symlink("..", filepath.Join(w.inside, "a", "back")),
		os.Symlink("/proc/self/root"+w.outside, filepath.Join(w.inside, "proc")),
		os.Symlink("/", filepath.Join(w.inside, "root")),
		unix.Mkfifo(filepath.Join(w.inside, "pipe"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w.before = w.state(t)
	return w
}

// state returns everything outside, by path.
func (w *world) state(t testing.TB) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(w.outside, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			all[path] = "dir"
			return err
		}
		data, err := os.ReadFile(path)
		all[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// untouched checks that nothing outside was created, changed or removed.
func (w *world) untouched(t testing.TB, path string) {
	t.Helper()
	now := w.state(t)
	if len(now) != len(w.before) {
		t.Fatalf("%q changed what is outside: %v", path, now)
	}
	for name, content := range w.before {
		if now[name] != content {
			t.Fatalf("%q changed %s", path, name)
		}
	}
}

// paths generates paths from parts that are special to a kernel, an HTTP server or a careless
// program. The same seed generates the same paths.
func (w *world) paths(seed uint64) []string {
	r := rand.New(rand.NewPCG(seed, 0))
	parts := []string{
		"..", "..", "..", ".", "", "a", "b", "file", "secret", "outside", "inside", "absolute", "up", "far-up", "deep", "chain", "loop", "back",
		"proc", "root", "...", "..a", "a..", "%2e%2e", "..%2f..", `..\..`, "..\x00", "..;", "~", "$HOME", "…", "\u2025", "pipe", w.outside, "etc", "passwd",
		strings.Repeat("a", 300), strings.Repeat("../", 40),
	}
	var out []string
	for len(out) < tries {
		var names []string
		for range 1 + r.IntN(6) {
			names = append(names, parts[r.IntN(len(parts))])
		}
		path := strings.Join(names, "/")
		switch r.IntN(8) {
		case 0:
			path = "/" + path
		case 1:
			path += "/"
		case 2:
			path = url.PathEscape(path)
		}
		out = append(out, path)
	}
	return out
}

// below reports whether a resolved path is in the directory.
func below(dir, path string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// noting is a Mounter that records what it is to bind.
type noting struct {
	volumes.Unmounted
	bound *[]string
}

func (n noting) Bind(fd int, _ string) error {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	*n.bound = append(*n.bound, path)
	return err
}

// sources contains one ConfigMap; the pod sets the paths of its keys.
type sources struct{}

func (sources) ConfigMap(context.Context, string, string) (*corev1.ConfigMap, error) {
	return &corev1.ConfigMap{Data: map[string]string{"key": "value"}}, nil
}
func (sources) Secret(context.Context, string, string) (*corev1.Secret, error) { panic("none") }
func (sources) Claim(context.Context, string, string) (*corev1.PersistentVolumeClaim, error) {
	panic("none")
}
func (sources) HoldVolume(context.Context, *corev1.PersistentVolume) error { panic("none") }
func (sources) PersistentVolume(context.Context, string) (*corev1.PersistentVolume, error) {
	panic("none")
}
func (sources) Token(context.Context, string, string, *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	panic("none")
}

func podWith(uid types.UID, volume corev1.VolumeSource) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: uid}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: volume}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}}
	return pod
}

// setUp sets up the volume of podWith.
func setUp(ctx context.Context, m *volumes.Manager, pod *corev1.Pod) (map[string]volumes.Mount, error) {
	mount, err := m.SetUp(ctx, pod, &pod.Spec.Volumes[0])
	return map[string]volumes.Mount{"v": mount}, err
}

// A subPath stays in its volume, whatever links the volume contains.
func TestSubPath(t *testing.T) {
	w := newWorld(t)
	var bound []string
	m := volumes.New(volumes.Config{Root: filepath.Join(t.TempDir(), "kubelet"), Sources: sources{}, Mounter: noting{bound: &bound}})
	mounts, err := setUp(t.Context(), m, podWith("uid", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: w.inside}}))
	if err != nil {
		t.Fatal(err)
	}
	given := 0
	for _, path := range w.paths(1) {
		bound = nil
		target, err := m.SubPath(t.Context(), mounts["v"], path)
		w.untouched(t, path)
		if err != nil {
			continue
		}
		given++
		for _, b := range bound {
			if !below(w.inside, b) {
				t.Errorf("subPath %q leads to %s", path, b)
			}
		}
		if len(bound) == 0 && target != w.inside { // the volume itself needs no bind mount
			t.Errorf("subPath %q gives %s, which nothing was bound to", path, target)
		}
	}
	if given == 0 || given == tries {
		t.Errorf("%d of %d paths were good: the test tries nothing", given, tries)
	}
}

// The files of a volume stay in the volume.
func TestVolumeItems(t *testing.T) {
	w := newWorld(t)
	root := filepath.Join(filepath.Dir(w.inside), "kubelet")
	m := volumes.New(volumes.Config{Root: root, Sources: sources{}, Mounter: volumes.Unmounted{}})
	good := 0
	for i, path := range w.paths(2) {
		pod := podWith("uid", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{Items: []corev1.KeyToPath{{Key: "key", Path: path}}}})
		pod.UID = types.UID(fmt.Sprint("uid-", i))
		mounts, err := setUp(t.Context(), m, pod)
		w.untouched(t, path)
		if err == nil {
			good++
			if !below(root, mounts["v"].HostPath) {
				t.Errorf("%q: the volume is at %s", path, mounts["v"].HostPath)
			}
		}
		m.TearDown(t.Context(), pod.UID)
		if entries, _ := os.ReadDir(filepath.Dir(w.inside)); len(entries) != 3 && len(entries) != 2 {
			t.Fatalf("%q made something beside the kubelet's directory", path)
		}
	}
	if good == 0 || good == tries {
		t.Errorf("%d of %d paths were good: the test tries nothing", good, tries)
	}
}

// A container's log is a file below the log directory.
func TestLogs(t *testing.T) {
	w := newWorld(t)
	read := 0
	for _, path := range w.paths(3) {
		var out bytes.Buffer
		err := logs.Read(t.Context(), w.inside, w.inside+"/"+path, logs.Options{}, &out, func() {})
		if strings.Contains(out.String(), "secret") {
			t.Errorf("%q was read as a log: %s", path, out.String())
		}
		if err == nil {
			read++
		}
	}
	if err := logs.Read(t.Context(), w.inside, filepath.Join(w.outside, "secret"), logs.Options{}, &bytes.Buffer{}, func() {}); err == nil {
		t.Error("a log elsewhere was read")
	}
	if read == tries {
		t.Error("every path was good: the test tries nothing")
	}
}

// anyone authenticates every request as an administrator.
type anyone struct{}

func (anyone) Authenticate(*http.Request) (*access.User, error) {
	return &access.User{Name: "admin"}, nil
}

func (anyone) MayResource(context.Context, *access.User, authorizationv1.ResourceAttributes) (bool, error) {
	return true, nil
}

// The node's log page serves only files below /var/log.
func TestNodeLogs(t *testing.T) {
	w := newWorld(t)
	root, err := os.OpenRoot(w.inside)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	h := server.New(server.Config{NodeLogs: logs.FS(root), Access: anyone{}, Pods: func() []*corev1.Pod { return nil }})
	codes := map[int]int{}
	for _, path := range w.paths(4) {
		r := httptest.NewRequest("GET", "/logs/", nil)
		r.URL.Path, r.URL.RawPath = "/logs/"+path, ""
		for range 3 { // the server first redirects to a clean path
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			if strings.Contains(rec.Body.String(), "root's secret") {
				t.Errorf("%q shows the secret", path)
			}
			to := rec.Header().Get("Location")
			if rec.Code != http.StatusMovedPermanently && rec.Code != http.StatusTemporaryRedirect {
				codes[rec.Code]++
				break
			}
			u, err := r.URL.Parse(to)
			if err != nil {
				break
			}
			if u.Host != "" && u.Host != r.Host {
				t.Errorf("%q leads to another server: %s", path, to)
			}
			r.URL = u
		}
	}
	if codes[http.StatusOK] == 0 || codes[http.StatusOK] == tries {
		t.Errorf("answers %v: the test tries nothing", codes)
	}
}

// A hostPath is created at its path, or not at all.
func TestHostPathIsNotMadeThroughALink(t *testing.T) {
	w := newWorld(t)
	m := volumes.New(volumes.Config{Root: filepath.Join(t.TempDir(), "kubelet"), Sources: sources{}, Mounter: volumes.Unmounted{}})
	if err := os.Symlink(filepath.Join(w.outside, "new"), filepath.Join(w.inside, "dangling")); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []corev1.HostPathType{corev1.HostPathDirectoryOrCreate, corev1.HostPathFileOrCreate} {
		_, err := setUp(t.Context(), m, podWith(types.UID(kind), corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(w.inside, "dangling"), Type: &kind}}))
		if err == nil {
			t.Errorf("%s: a link that leads nowhere was taken", kind)
		}
		w.untouched(t, string(kind))
	}
}

// FuzzSubPath is TestSubPath with fuzzed paths.
func FuzzSubPath(f *testing.F) {
	for _, path := range []string{"a/b", "up/secret", "absolute/new", "a/back/chain", "a/../../outside", "new/dir"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		w := newWorld(t)
		var bound []string
		m := volumes.New(volumes.Config{Root: filepath.Join(t.TempDir(), "kubelet"), Sources: sources{}, Mounter: noting{bound: &bound}})
		mounts, err := setUp(t.Context(), m, podWith("uid", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: w.inside}}))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = m.SubPath(t.Context(), mounts["v"], path)
		w.untouched(t, path)
		for _, b := range bound {
			if !below(w.inside, b) {
				t.Errorf("subPath %q leads to %s", path, b)
			}
		}
	})
}
