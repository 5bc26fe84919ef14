package machine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNewMemberGetsInitialCluster(t *testing.T) {
	host, cfg := newHost(t)
	m, err := newMachine(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	m.EtcdMembers = "alpha=https://192.0.2.10:2380,first=https://192.0.2.9:2380"
	conf := m.etcd().conf
	got := []any{conf["initial-cluster"], conf["initial-cluster-state"]}
	if d := cmp.Diff([]any{"alpha=https://192.0.2.10:2380,first=https://192.0.2.9:2380", "existing"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if err := m.saveConfig(); err != nil {
		t.Fatal(err)
	}
	again, err := loadMachine(cfg, host)
	if err != nil || again.EtcdMembers != m.EtcdMembers {
		t.Errorf("a later run knows %q, %v: it would start etcd with other settings", again.EtcdMembers, err)
	}
}
