package kubelet

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podium/pkg/daemon"
	"podium/pkg/kubelet/hardware/drawn"
)

const gibi = 1 << 30

func placementOf(t *testing.T, args ...string) *placementFlags {
	t.Helper()
	p, fs := &placementFlags{}, pflag.NewFlagSet("", pflag.ContinueOnError)
	p.addFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPlacementFlagsAreRefused(t *testing.T) {
	if err := placementOf(t).validate(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ args, want string }{
		{"--cpu-manager-policy=dynamic", `--cpu-manager-policy "dynamic": want none or static`},
		{"--cpu-manager-policy-options=full-pcpus-only=true", "need --cpu-manager-policy=static"},
		{"--cpu-manager-policy=static --cpu-manager-policy-options=fast=true", "option fast is not supported"},
		{"--cpu-manager-policy=static --cpu-manager-policy-options=full-pcpus-only=1.5", "full-pcpus-only=1.5: want true or false"},
		{"--cpu-manager-policy=static --cpu-manager-policy-options=full-pcpus-only=true,distribute-cpus-across-cores=true", "exclude each other"},
		{"--cpu-manager-policy=static --cpu-manager-policy-options=align-by-socket=true --topology-manager-policy=single-numa-node", "align-by-socket and --topology-manager-policy=single-numa-node exclude each other"},
		{"--cpu-manager-reconcile-period=0s", "must be positive"},
		{"--reserved-cpus=1-x", "--reserved-cpus"},
		{"--memory-manager-policy=static", `--memory-manager-policy "static": want None or Static`},
		{"--reserved-memory=0:memory=1Gi", "--reserved-memory needs --memory-manager-policy=Static"},
		{"--memory-manager-policy=Static --reserved-memory=0:memory=1Gi;0:memory=1Gi", "NUMA node 0 appears twice"},
		{"--topology-manager-policy=all", `topology manager policy "all"`},
		{"--topology-manager-scope=node", `topology manager scope "node"`},
	} {
		if err := placementOf(t, strings.Fields(c.args)...).validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.args, err, c.want)
		}
	}
}

func TestPlacementOfFlags(t *testing.T) {
	d := drawn.Drawing{Sockets: 2, Nodes: 2, Cores: 4, Threads: 2, Memory: gibi}
	paths, err := d.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cfg := &Config{Log: slog.New(slog.DiscardHandler), RootDir: t.TempDir(), Registry: prometheus.NewRegistry(), Reserved: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100m"),
	}}
	expected := (&evictionFlags{hard: []string{"memory.available<100Mi"}}).allocatableReservation(cfg.Reserved, corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(gibi, resource.BinarySI)})
	p := placementOf(t, "--cpu-manager-policy=static", "--memory-manager-policy=Static", "--reserved-memory=0:memory=60Mi", "--reserved-memory=1:memory=40Mi", "--reserved-cpus=0,4", "--topology-manager-policy=restricted")
	if p.reserve(cfg.Reserved); cfg.Reserved.Cpu().String() != "2" {
		t.Errorf("reserved %v", cfg.Reserved)
	}
	if _, err := p.placement(cfg, expected, paths); err != nil {
		t.Fatal(err)
	}
	families, err := cfg.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		values[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
	}
	if values["kubelet_cpu_manager_shared_pool_size_millicores"] != 8000 {
		t.Errorf("metrics %v", values)
	}
	cfg.Registry = nil
	if _, err := placementOf(t).placement(cfg, cfg.Reserved, paths); err == nil || !strings.Contains(err.Error(), `configured policy "none" differs from state checkpoint policy "static"`) {
		t.Errorf("the policy none takes the state of static: %v", err)
	}
}

func TestReservedSystemCPUs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := "apiVersion: " + daemon.ConfigAPIVersion + `
kind: KubeletConfiguration
kubeconfig: /dev/null
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true"}
cpuManagerReconcilePeriod: 5s
reservedSystemCPUs: 0-1
systemReserved: {cpu: 100m}
memoryManagerPolicy: Static
reservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}, {numaNode: 1, limits: {memory: 1Gi, hugepages-2Mi: 4Mi}}]
topologyManagerPolicy: best-effort
topologyManagerScope: pod
topologyManagerPolicyOptions: {prefer-closest-numa-nodes: "true"}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o, cmd := &options{}, NewCommand()
	cmd.ResetFlags()
	o.addFlags(cmd)
	if err := daemon.LoadConfig(cmd, path, &o.file); err != nil {
		t.Fatal(err)
	}
	if got, want := o.placement.reservedMemory.String(), `[{"numaNode":0,"limits":{"memory":"100Mi"}},{"numaNode":1,"limits":{"hugepages-2Mi":"4Mi","memory":"1Gi"}}]`; got != want {
		t.Errorf("reserved memory %s, want %s", got, want)
	}
	o.cfg.RootDir = t.TempDir()
	cfg, err := o.config(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if p := o.placement; p.reservedCPUs != "0-1" || cfg.Reserved.Cpu().Value() != 2 || p.topologyScope != "pod" || p.cpuOptions["full-pcpus-only"] != "true" {
		t.Errorf("%+v, reserved %v", p, cfg.Reserved)
	}
}
