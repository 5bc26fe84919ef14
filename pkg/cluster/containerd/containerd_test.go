package containerd

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestContainerdVersions(t *testing.T) {
	for text, want := range map[string]bool{
		"containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1": false,
		"containerd containerd.io 1.7.27 05044ec0a9a75232cad458027ca83437aae3f4da":    false,
		"containerd github.com/containerd/containerd/v2 v2.1.0 061792f0ecf3684fb30a3": true,
	} {
		if got := isVersion2(text); got != want {
			t.Errorf("%s: is it 2.x? got %v", text, got)
		}
	}
}

// TestRender checks the configuration of a node, in both versions of the
// format.
func TestRender(t *testing.T) {
	restrict, err := lacksSysResource()
	if err != nil {
		t.Fatal(err)
	}
	oom, systemd := strconv.FormatBool(restrict), true
	for version, want := range map[string]string{
		"containerd 1.6.20": `# Written by a test.
version = 2

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/podium/pause:v1"
  restrict_oom_score_adj = ` + oom + `
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
`,
		"containerd v2.1.0": `# Written by a test.
version = 3

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/podium/pause:v1"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = ` + oom + `
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = true

[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
`,
	} {
		got, err := Config{Version: version, Comment: "Written by a test.", CNIBin: "/usr/lib/cni", CNIConf: "/etc/cni/net.d", SystemdCgroup: &systemd}.Render()
		if diff := cmp.Diff(want, string(got)); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", version, err, diff)
		}
	}
}

// TestRenderBesideTheHosts checks that the containerd of a local cluster shares
// nothing with the host's.
func TestRenderBesideTheHosts(t *testing.T) {
	restrict, err := lacksSysResource()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Config{Version: "containerd 1.6.20", Root: "/c/root", State: "/run/c", Socket: "/run/c.sock", CNIBin: "/usr/lib/cni", CNIConf: "/c/cni"}.Render()
	want := `version = 2
root = "/c/root"
state = "/run/c"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]

[grpc]
  address = "/run/c.sock"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/podium/pause:v1"
  restrict_oom_score_adj = ` + strconv.FormatBool(restrict) + `
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/c/cni"
`
	if diff := cmp.Diff(want, string(got)); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
