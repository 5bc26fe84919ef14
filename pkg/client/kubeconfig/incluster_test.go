package kubeconfig

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInCluster(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	dir := t.TempDir()
	if _, err := inCluster(dir); !errors.Is(err, ErrNotInCluster) {
		t.Errorf("outside: %v", err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
	if _, err := inCluster(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a pod without a service account: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "namespace"), []byte("team\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	access := func(namespace string) *Config {
		c := New("in-cluster", Cluster{Server: "https://[fd00::1]:443", CertificateAuthority: filepath.Join(dir, "ca.crt")}, User{TokenFile: filepath.Join(dir, "token")})
		c.Contexts[0].Value.Namespace = namespace
		return c
	}
	got, err := inCluster(dir)
	if diff := cmp.Diff(access("team"), got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	t.Setenv("POD_NAMESPACE", "other")
	got, err = inCluster(dir)
	if diff := cmp.Diff(access("other"), got); diff != "" || err != nil {
		t.Errorf("with POD_NAMESPACE: %v (-want +got):\n%s", err, diff)
	}
}
