package local

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"podium/pkg/daemon/memory"
)

func TestDaemonsHaveSoftMemoryLimits(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	machine, err := memory.Machine()
	if err != nil {
		t.Fatal(err)
	}
	c := &Config{Node: "a", NodeIP: "192.0.2.1"}
	sum := uint64(0)
	for _, p := range c.daemons() {
		i := slices.IndexFunc(p.env, func(e string) bool { return strings.HasPrefix(e, "GOMEMLIMIT=") })
		if i < 0 {
			t.Errorf("%s has no limit", p.name)
			continue
		}
		n, err := strconv.ParseUint(strings.TrimPrefix(p.env[i], "GOMEMLIMIT="), 10, 64)
		if err != nil || n == 0 {
			t.Errorf("%s: %s", p.name, p.env[i])
		}
		sum += n
	}
	if sum > machine*2/3 {
		t.Errorf("all together may take %d of %d bytes", sum, machine)
	}
	t.Setenv("GOMEMLIMIT", "100MiB")
	if p := c.daemons()[0]; len(p.env) > 0 {
		t.Errorf("the caller's limit becomes %q", p.env)
	}
}

func TestExtraConfigIsAddedToTheNamedDaemon(t *testing.T) {
	c := &Config{Node: "a", NodeIP: "192.0.2.1", Extra: []string{"kube-apiserver.etcd-compaction-interval=1m", "kubelet.v=4"}}
	if err := c.complete(); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, p := range c.daemons() {
		got[p.name] = p.args[len(p.args)-1]
	}
	if got["kube-apiserver"] != "--etcd-compaction-interval=1m" || got["kubelet"] != "--v=4" || got["kube-proxy"] == "--v=4" {
		t.Errorf("the daemons' last flags are %v", got)
	}
	for _, bad := range []string{"etcd.v=4", "kubelet", "kubelet.v", "kubelet.=4", "=", ""} {
		c := &Config{Node: "a", NodeIP: "192.0.2.1", Extra: []string{bad}}
		if err := c.complete(); err == nil || !strings.Contains(err.Error(), "want DAEMON.FLAG=VALUE") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
