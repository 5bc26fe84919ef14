package machine

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestASecondRunChangesNothing checks that init restarts only the units whose
// settings changed.
func TestASecondRunChangesNothing(t *testing.T) {
	host, cfg := newHost(t)
	restarted := func(cfg Config) []string {
		t.Helper()
		m, err := newMachine(cfg, host)
		if err != nil {
			t.Fatal(err)
		}
		host.ran = nil
		if err := m.identities(); err != nil {
			t.Fatal(err)
		}
		if err := m.start(t.Context(), append(m.controlPlane(), m.node()...)); err != nil {
			t.Fatal(err)
		}
		for _, line := range host.ran {
			if rest, ok := strings.CutPrefix(line, "systemctl restart --no-block "); ok {
				return strings.Fields(rest)
			}
		}
		return nil
	}
	all := []string{"etcd.service", "kube-apiserver.service", "kube-controller-manager.service", "kube-scheduler.service", "kubelet.service", "kube-proxy.service"}
	if diff := cmp.Diff(all, restarted(cfg)); diff != "" {
		t.Errorf("the first run (-want +got):\n%s", diff)
	}
	before := tree(t, cfg.at(configDir))
	if got := restarted(cfg); got != nil {
		t.Errorf("the second run started %v afresh", got)
	}
	if diff := cmp.Diff(before, tree(t, cfg.at(configDir))); diff != "" {
		t.Errorf("the second run changed files:\n%s", diff)
	}
	cfg.NodeLabels = map[string]string{"disk": "fast"}
	if got := restarted(cfg); !slices.Equal(got, []string{"kubelet.service"}) {
		t.Errorf("for another label %v were started afresh", got)
	}
}

// TestSecretsAreRootsOnly checks that only root can read keys and kubeconfigs.
func TestSecretsAreRootsOnly(t *testing.T) {
	host, cfg := newHost(t)
	m, err := newMachine(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.identities(); err != nil {
		t.Fatal(err)
	}
	if err := m.start(t.Context(), append(m.controlPlane(), m.node()...)); err != nil {
		t.Fatal(err)
	}
	seen := 0
	err = filepath.WalkDir(cfg.at(configDir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if ext := filepath.Ext(path); ext != ".key" && ext != ".conf" && ext != ".yaml" {
			return nil
		}
		seen++
		info, err := d.Info()
		if err == nil && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}
		return err
	})
	if err != nil || seen < 20 {
		t.Errorf("saw %d files, %v", seen, err)
	}
}

func TestEtcdServesTLSOnly(t *testing.T) {
	host, cfg := newHost(t)
	m, err := newMachine(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writeYAML(cfg.at("/etcd.yaml"), m.etcd().conf); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(cfg.at("/etcd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Listen string `json:"listen-client-urls"`
		Peers  string `json:"listen-peer-urls"`
		Client struct {
			Auth bool `json:"client-cert-auth"`
		} `json:"client-transport-security"`
		Peer struct {
			Auth bool `json:"client-cert-auth"`
		} `json:"peer-transport-security"`
	}
	if err := yaml.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	for _, u := range strings.Split(got.Listen+","+got.Peers, ",") {
		if !strings.HasPrefix(u, "https://") {
			t.Errorf("etcd listens at %s", u)
		}
	}
	if !got.Client.Auth || !got.Peer.Auth {
		t.Error("etcd lets in who shows no certificate")
	}
}

// tree returns the content of every file below dir.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		out[strings.TrimPrefix(path, dir)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
