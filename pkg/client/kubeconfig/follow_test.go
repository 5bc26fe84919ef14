package kubeconfig

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestServersAreWrittenDown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "daemon.conf")
	if err := New("c", Cluster{Server: "https://a:1"}, User{Token: "t"}).Write(file, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, servers := range [][]string{{"https://a:1", "https://b:1"}, {"https://b:1", "https://c:1"}} {
		if err := setServers(file, servers); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := ForDaemon(file, "test")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"https://a:1", "https://b:1", "https://c:1"}, cfg.Servers); diff != "" {
		t.Error(diff)
	}
}
