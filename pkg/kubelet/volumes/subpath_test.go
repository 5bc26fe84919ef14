package volumes_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/kubelet/volumes"
)

// In 500 random trees of directories, files and mostly hostile links, no sub-path leads
// out of the volume and nothing is created outside of it.
func TestSubPathsCannotEscape(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	n := newNode(t)
	outside := t.TempDir()
	os.MkdirAll(filepath.Join(outside, "dir"), 0o755)
	os.WriteFile(filepath.Join(outside, "secret"), []byte("!"), 0o600)
	resolved := 0
	for i := range 500 {
		p := pod(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
		p.UID = "uid-1"
		got, err := n.SetUp(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		v := got["v0"]
		grow(r, v.HostPath, outside)
		for range 4 {
			sub := randomPath(r, outside)
			target, err := n.SubPath(t.Context(), v, sub)
			if err != nil {
				continue
			}
			resolved++
			from := strings.TrimPrefix(n.mounts.kind[target], "bind ")
			if target == v.HostPath {
				from = target // the volume itself
			}
			if from != v.HostPath && !strings.HasPrefix(from, v.HostPath+"/") {
				t.Fatalf("seed %d, tree %d: %q leads to %s", seed, i, sub, from)
			}
		}
		if names, _ := filepath.Glob(filepath.Join(outside, "*")); len(names) != 2 {
			t.Fatalf("seed %d, tree %d: made outside: %v", seed, i, names)
		}
		if err := n.TearDown(t.Context(), p.UID); err != nil {
			t.Fatal(err)
		}
	}
	if resolved < 100 {
		t.Errorf("only %d of 2000 paths resolved: the test tests little", resolved)
	}
}

var names = []string{"a", "b", "c"}

// grow fills a volume; the links have any target that a container could write.
func grow(r *rand.Rand, root, outside string) {
	dirs := []string{root}
	for range 2 + r.IntN(10) {
		p := filepath.Join(dirs[r.IntN(len(dirs))], names[r.IntN(len(names))])
		switch r.IntN(4) {
		case 0:
			if f, err := os.OpenFile(p, os.O_CREATE|os.O_EXCL, 0o644); err == nil { // does not follow links
				f.Close()
			}
		case 1:
			os.Symlink(randomPath(r, outside), p)
		default:
			if os.Mkdir(p, 0o755) == nil {
				dirs = append(dirs, p)
			}
		}
	}
}

func randomPath(r *rand.Rand, outside string) string {
	parts := make([]string, 1+r.IntN(4))
	for i := range parts {
		switch r.IntN(8) {
		case 0:
			parts[i] = ".."
		case 1:
			parts[i] = "."
		default:
			parts[i] = names[r.IntN(len(names))]
		}
	}
	path := strings.Join(parts, "/")
	switch r.IntN(10) {
	case 0:
		return outside + "/" + path
	case 1:
		return strings.Repeat("../", 1+r.IntN(12)) + path
	case 2:
		return strings.Repeat("../", 12) + outside + "/dir"
	}
	return path
}

func TestSubPathRules(t *testing.T) {
	n := newNode(t)
	got, err := n.SetUp(t.Context(), pod(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}))
	if err != nil {
		t.Fatal(err)
	}
	v := got["v0"]
	os.Symlink("loop", filepath.Join(v.HostPath, "loop"))
	os.WriteFile(filepath.Join(v.HostPath, "file"), nil, 0o644)
	for _, tc := range []struct{ sub, wantErr string }{
		{"new/dir", ""}, {"file", ""}, {"", ""}, {".", ""}, {"a`ls`b", ""},
		{"/abs", "error SubPath `/abs` must not be an absolute path"},
		{"a/../b", "unable to provision SubPath `a/../b`: must not contain '..'"},
		{"..", "unable to provision SubPath `..`: must not contain '..'"},
		{"loop", "too many levels of symbolic links"},
		{"file/below", "not a directory"},
	} {
		_, err := n.SubPath(t.Context(), v, tc.sub)
		if (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
			t.Errorf("%q: %v, want %q", tc.sub, err, tc.wantErr)
		}
	}
	if info, err := os.Stat(filepath.Join(v.HostPath, "new/dir")); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("a missing sub-path is made with the volume's mode: %v, %v", info, err)
	}
	if _, err := n.SubPath(t.Context(), volumes.Mount{HostPath: v.HostPath}, "x"); err == nil {
		t.Error("a mount that SetUp did not give was taken")
	}
}

func BenchmarkSetUpAndTearDown(b *testing.B) {
	m := volumes.New(volumes.Config{Root: b.TempDir(), Mounter: volumes.Unmounted{}, Sources: &api{configMaps: map[string]*corev1.ConfigMap{
		"c": {Data: map[string]string{"ca.crt": "x", "b": "y"}}}}})
	p := pod(configMap("c"), corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	for i := 0; b.Loop(); i++ {
		p.UID = "u"
		if _, err := setUp(b.Context(), m, p); err != nil {
			b.Fatal(err)
		}
		if err := m.TearDown(b.Context(), p.UID); err != nil {
			b.Fatal(fmt.Errorf("round %d: %w", i, err))
		}
	}
}
