package security

import (
	"bytes"
	"encoding/base64"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// clusterFiles calls look for each file and folder of the cluster except the images and
// containers of the runtime.
func clusterFiles(t *testing.T, look func(path string, info fs.FileInfo)) {
	t.Helper()
	top := filepath.Dir(pkiDir)
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // removed while this walks
		}
		if err != nil {
			return err
		}
		if name, _ := filepath.Rel(top, path); slices.Contains([]string{"containerd", filepath.Join("kubelet", "pods")}, name) {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err == nil {
			look(path, info)
		}
		return nil
	})
	check(t, err)
}

// The value of a Secret is in none of the cluster's files, in whatever way it was created and
// deleted, nor in the snapshot of the store that the API server serves.
func TestSecretsAtRest(t *testing.T) {
	t.Parallel()
	ns := space(t)
	secrets := client.For[*corev1.Secret](admin).In(ns)
	first, second, public := "at-rest-first-31d8", "at-rest-second-31d8", "at-rest-public-31d8"
	make := func(name string) *corev1.Secret {
		made, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"key": first}})
		check(t, err)
		return made
	}
	kept := make("kept")
	kept.StringData = map[string]string{"key": second}
	_, err := secrets.Update(t.Context(), kept)
	check(t, err)
	make("gone")
	check(t, secrets.Delete(t.Context(), "gone", metav1.DeleteOptions{}))
	_, err = client.For[*corev1.ConfigMap](admin).In(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"key": public}})
	check(t, err)

	found := map[string][]string{}
	look := func(where string, data []byte) {
		for _, text := range []string{first, second, public} {
			for _, form := range []string{text, base64.StdEncoding.EncodeToString([]byte(text))} {
				if bytes.Contains(data, []byte(form)) {
					found[text] = append(found[text], where)
				}
			}
		}
	}
	clusterFiles(t, func(path string, info fs.FileInfo) {
		if !info.Mode().IsRegular() {
			return
		}
		data, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
		look(path, data)
	})
	copied := administrator(t).must(t, "GET", "/snapshot", "")
	look("snapshot", []byte(copied.body))
	if where := found[public]; !slices.Contains(where, "snapshot") || !slices.ContainsFunc(where, func(f string) bool { return strings.Contains(f, "/etcd/") }) {
		t.Fatalf("a ConfigMap is found in %v only: this test looks in the wrong place", where)
	}
	for _, secret := range []string{first, second} {
		if len(found[secret]) > 0 {
			t.Errorf("a Secret stands in %v", found[secret])
		}
	}
}

// Other users of the machine can read no key, no kubeconfig, no log and nothing of the store,
// and cannot change any of the cluster's files.
func TestFileModes(t *testing.T) {
	t.Parallel()
	keys := 0
	clusterFiles(t, func(path string, info fs.FileInfo) {
		mode := info.Mode()
		if mode&fs.ModeSymlink != 0 {
			return
		}
		if mode.Perm()&0o022 != 0 {
			t.Errorf("%s: others may change it: %v", path, mode)
		}
		within := func(dir string) bool { return strings.Contains(path+"/", "/cluster/"+dir+"/") }
		if mode.IsDir() {
			if private := within("etcd") || within("kubelet-pki"); private && mode.Perm() != 0o700 {
				t.Errorf("%s: %v, want 0700", path, mode)
			}
			if strings.HasSuffix(path, "/cluster/kubelet") && mode.Perm()&0o007 != 0 {
				t.Errorf("%s: %v, but it holds the volumes of pods", path, mode)
			}
			return
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return // removed, or a socket
		}
		public := slices.Contains([]string{".crt", ".crl", ".pub"}, filepath.Ext(path))
		secret := slices.ContainsFunc([]string{"etcd", "logs", "pids", "kubelet-pki"}, within) ||
			!public && (within("pki") || within("kubeconfigs")) || slices.Contains([]string{"kubeconfig", "cluster.json", "audit-policy.yaml"}, filepath.Base(path)) ||
			bytes.Contains(data, []byte("PRIVATE KEY")) || bytes.Contains(data, []byte("client-key-data"))
		if secret && mode.Perm()&^0o600 != 0 {
			t.Errorf("%s: %v, want 0600 or less", path, mode)
		}
		if bytes.Contains(data, []byte("PRIVATE KEY")) {
			keys++
		}
	})
	if keys < 8 {
		t.Errorf("%d private keys were seen: this test looks in the wrong place", keys)
	}
}
