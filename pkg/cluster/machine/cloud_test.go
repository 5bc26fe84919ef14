package machine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestACloud checks that with a provider control planes have the
// cloud-controller-manager, its identity and its configuration, and kubelets
// have an external provider; without one there is none of it.
func TestACloud(t *testing.T) {
	host, cfg := newHost(t)
	plain, err := newMachine(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(plain.controlPlane(), func(u unit) bool { return u.name == cloudManager }) || plain.kubelet().conf["cloudProvider"] != nil ||
		slices.Contains(plain.sharedFiles(), cloudFile) {
		t.Error("without a provider there is something of it")
	}
	cfg.Cloud, cfg.PodNetwork = "docker", networkCloud
	cfg.CloudConfig = filepath.Join(t.TempDir(), "cloud.yaml")
	if err := os.WriteFile(cfg.CloudConfig, []byte("kind: DockerCloud"), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := newMachine(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.identities(); err != nil {
		t.Fatal(err)
	}
	kept := func() string {
		t.Helper()
		if err := m.keepCloudConfig(); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(m.at(pkiDir, cloudFile))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if got := kept(); got != "kind: DockerCloud" {
		t.Errorf("what the provider reads is %q", got)
	}
	m.CloudConfig = ""
	if got := kept(); got != "kind: DockerCloud" {
		t.Errorf("a run without --cloud-config leaves %q of it", got)
	}
	if _, err := os.Stat(m.at(configDir, kubeconfigs, cloudManager+".conf")); err != nil {
		t.Error(err)
	}
	u := m.controlPlane()[len(m.controlPlane())-1]
	if u.name != cloudManager || u.conf["cloudProvider"] != "docker" || u.conf["configureCloudRoutes"] != true || u.conf["clusterName"] != cfg.Cluster {
		t.Errorf("%s: %v", u.name, u.conf)
	}
	if m.kubelet().conf["cloudProvider"] != "external" || !slices.Contains(m.sharedFiles(), cloudFile) || m.setup().Cloud != "docker" {
		t.Error("kubelets, or machines that join, are not told")
	}
}

func TestACloudThatDoesNotFitIsRefused(t *testing.T) {
	_, cfg := newHost(t)
	cfg.Cloud, cfg.CloudConfig, cfg.PodNetwork = "aws", "/nowhere/cloud.yaml", networkCloud
	err := cfg.Validate()
	for _, want := range []string{`--cloud-provider "aws": use one of baremetal, docker`, "--cloud-config: stat /nowhere", "--pod-network cloud: needs"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nsays nothing of %s", err, want)
		}
	}
	cfg.Cloud = ""
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "--cloud-config is for a --cloud-provider") {
		t.Error(err)
	}
}
