package kubelet

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podium/pkg/daemon"
	"podium/pkg/kubelet/images"
	"podium/pkg/kubelet/nodepressure"
	"podium/pkg/kubelet/pids"
	"podium/pkg/kubelet/shutdown"
)

func TestTaints(t *testing.T) {
	got, err := parseTaints([]string{"a=b:NoSchedule", "c:NoExecute", "d.example/e=:PreferNoSchedule"})
	want := []corev1.Taint{{Key: "a", Value: "b", Effect: "NoSchedule"}, {Key: "c", Effect: "NoExecute"}, {Key: "d.example/e", Effect: "PreferNoSchedule"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, taints (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"a=b", "a=b:Sometimes"} {
		if _, err := parseTaints([]string{bad}); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

func FuzzTaints(f *testing.F) {
	f.Add("a=b:NoSchedule")
	f.Fuzz(func(t *testing.T, text string) {
		if taints, err := parseTaints([]string{text}); err == nil && len(taints) != 1 {
			t.Errorf("%q makes %v", text, taints)
		}
	})
}

func TestReserved(t *testing.T) {
	got, err := parseReserved(map[string]string{"cpu": "200m"}, map[string]string{"cpu": "300m", "memory": "1Gi"})
	if err != nil || got.Cpu().String() != "500m" || got.Memory().String() != "1Gi" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := parseReserved(map[string]string{"cpu": "much"}); err == nil {
		t.Error("much is taken")
	}
}

func TestProcessIDsAreDivided(t *testing.T) {
	for _, c := range []struct {
		name     string
		podPIDs  int64
		reserved string
		ok       func(b pidBounds, most int64) bool
	}{
		{"a twentieth is reserved", 0, "", func(b pidBounds, most int64) bool {
			return b.all == pids.Allocatable(most, nil) && b.pod > 0 && b.pod <= 4096 && b.pod < b.all
		}},
		{"--kube-reserved=pid=200", -1, "200", func(b pidBounds, most int64) bool { return b.all == most-200 && b.pod == b.all }},
		{"--pod-max-pids=64", 64, "", func(b pidBounds, _ int64) bool { return b.pod == 64 }},
	} {
		o := &options{podPIDs: c.podPIDs, eviction: evictionFlags{hard: []string{"pid.available<1"}}}
		cfg := &Config{Log: slog.New(slog.DiscardHandler), Reserved: corev1.ResourceList{}}
		if c.reserved != "" {
			cfg.Reserved[pids.Resource] = resource.MustParse(c.reserved)
		}
		b, err := o.processIDs(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if u, threshold, met := cfg.Machine.PIDs.Measure(); !c.ok(b, u.Max) || threshold != 1 || met {
			t.Errorf("%s: %+v of %+v, threshold %d, met %t", c.name, b, u, threshold, met)
		}
	}
	all := &Config{Log: slog.New(slog.DiscardHandler), Reserved: corev1.ResourceList{pids.Resource: resource.MustParse("1G")}}
	if _, err := new(options).processIDs(all); err == nil {
		t.Error("a node whose process ids are all reserved takes pods")
	}
}

func TestInvalidFlagsAreAllReported(t *testing.T) {
	cmd := NewCommand()
	cmd.SetArgs([]string{"--cgroup-driver=x", "--cluster-dns=y", "--max-pods=0", "--image-pull-credentials-verification-policy=z", "--enforce-node-allocatable=system-reserved", "--eviction-hard=cpu.available<1"})
	var out bytes.Buffer
	if code := daemon.Execute(t.Context(), cmd, &out); code == 0 {
		t.Error("taken")
	}
	for _, want := range []string{"--kubeconfig is needed", "--cgroup-driver", "--cluster-dns", "--max-pods", "--image-pull-credentials-verification-policy", "--enforce-node-allocatable", `"cpu.available<1": cpu.available is no signal`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q says nothing of %s", out.String(), want)
		}
	}
}

func TestConfigFileSetsFlags(t *testing.T) {
	dir := t.TempDir()
	file, kubeconfig := filepath.Join(dir, "kubelet.yaml"), filepath.Join(dir, "kubeconfig")
	for path, text := range map[string]string{
		file: "apiVersion: config.podium.dev/v1alpha1\nkind: KubeletConfiguration\nmaxPods: 7\nclusterDNS: [10.96.0.10]\n" +
			"imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [registry.example.org/base/*]\nenableSystemLogHandler: true\nnodeLabels: {a: b}\n",
		kubeconfig: "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n" +
			"users: [{name: u, user: {token: t}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := &options{}
	cmd := NewCommand()
	cmd.ResetFlags()
	o.addFlags(cmd)
	if err := cmd.ParseFlags([]string{"--kubeconfig=" + kubeconfig, "--hostname-override=Me", "--root-dir=" + dir, "--port=0", "--register-with-taints=k=v:NoSchedule"}); err != nil {
		t.Fatal(err)
	}
	if err := daemon.LoadConfig(cmd, file, nil); err != nil {
		t.Fatal(err)
	}
	cfg, err := o.config(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if v := cfg.VerifyImages; v.Policy != images.NeverVerifyAllowlistedImages || v.Allowlist[0] != "registry.example.org/base/*" || v.Validate() != nil || !o.systemLogs {
		t.Errorf("%+v, log handler %t", v, o.systemLogs)
	}
	if cfg.MaxPods != 7 || cfg.ClusterDNS[0] != "10.96.0.10" || cfg.Labels["a"] != "b" || cfg.NodeName != "me" || cfg.TLS != nil || len(cfg.Taints) != 1 || cfg.LogMaxSize != 10<<20 {
		t.Errorf("%+v", cfg)
	}
}

func TestThisMachine(t *testing.T) {
	m, err := thisMachine("n", []string{"192.0.2.9"}, t.TempDir(), "containerd://1")
	if err != nil {
		t.Fatal(err)
	}
	if m.Capacity.Cpu().Value() < 1 || m.Capacity.Memory().Value() < 1<<20 || m.Addresses[0].Address != "192.0.2.9" || m.Info.KernelVersion == "" {
		t.Errorf("%+v", m)
	}
	if o := observe(t.TempDir(), t.TempDir()); o[nodepressure.Memory].Available < 1 || o[nodepressure.NodeFS].Capacity < 1 {
		t.Errorf("observed %+v", o)
	}
	if _, err := thisMachine("n", []string{"nonsense"}, t.TempDir(), ""); err == nil {
		t.Error("nonsense is an address")
	}
}

// Fields of the config file that are no flags take effect, and are checked.
func TestConfigFileFields(t *testing.T) {
	load := func(text string) (*options, error) {
		file := filepath.Join(t.TempDir(), "kubelet.yaml")
		if err := os.WriteFile(file, []byte("apiVersion: config.podium.dev/v1alpha1\nkind: KubeletConfiguration\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		o, cmd := &options{}, NewCommand()
		cmd.ResetFlags()
		o.addFlags(cmd)
		return o, daemon.LoadConfig(cmd, file, &o.file)
	}
	o, err := load("crashLoopBackOff: {maxContainerRestartPeriod: 20s}\nshutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n")
	if err != nil || o.file.validate() != nil {
		t.Fatal(err, o.file.validate())
	}
	want := shutdown.Periods{{Priority: 0, Grace: 20 * time.Second}, {Priority: 2000000000, Grace: 10 * time.Second}}
	if diff := cmp.Diff(want, o.file.shutdownPeriods()); diff != "" || o.file.CrashLoopBackOff.MaxContainerRestartPeriod.Duration != 20*time.Second {
		t.Errorf("periods (-want +got):\n%s", diff)
	}
	settings := map[string]any{}
	if err := o.file.addTo(settings); err != nil || settings["shutdownGracePeriod"] != "30s" {
		t.Errorf("%v, /configz shows %v", err, settings)
	}
	for text, want := range map[string]string{
		"staticPodURL: ftp://example.org/":                  "want the URL of an HTTP server",
		"crashLoopBackOff: {maxContainerRestartPeriod: 6m}": "want 1s to 5m0s",
		"configMapAndSecretChangeDetectionStrategy: watch":  "want Watch, Cache or Get",
		"shutdownGracePeriodCriticalPods: 10s":              "is longer than shutdownGracePeriod",
		"shutdownGracePeriod: 500ms":                        "want 0 or at least 1s",
		"shutdownGracePeriod: 5s\nshutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 1}]": "excludes shutdownGracePeriod",
		"shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: -1}]":                         "has -1 seconds",
		"shutdownGracePeriodByPodPriority: [{priority: 7}, {priority: 7}]":                                          "appears twice",
	} {
		o, err := load(text)
		if err == nil {
			err = o.file.validate()
		}
		if err == nil {
			_, err = o.manifests.manifests(&o.file, "")
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
