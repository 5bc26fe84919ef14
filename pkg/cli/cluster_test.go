package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"podium/pkg/cluster/docker"
	"podium/pkg/cluster/local"
)

func TestClusterCreateChoosesTheProvider(t *testing.T) {
	const file = "apiVersion: config.podium.dev/v1alpha1\nkind: Cluster\nmetadata: {name: from-file}\nnodes: [{role: control-plane}, {role: worker}]\n"
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"Nothing":      {nil, "docker podium control-plane wait 1m0s"},
		"Workers":      {[]string{"ci", "--workers", "2", "--wait", "0"}, "docker ci control-plane worker worker wait 0s"},
		"Available":    {[]string{"--control-planes=3"}, "docker podium control-plane control-plane control-plane wait 1m0s"},
		"File":         {[]string{"--config", "-"}, "docker from-file control-plane worker wait 1m0s"},
		"FileNamed":    {[]string{"ci", "--config", "-"}, "docker ci control-plane worker wait 1m0s"},
		"Local":        {[]string{"--provider", "local", "--dir", "d"}, "local d wait 1m0s"},
		"LocalLevel":   {[]string{"--provider", "local", "--dir", "d", "--pod-security", "restricted"}, "local d wait 1m0s restricted"},
		"Even":         {[]string{"--control-planes=2"}, "error: --control-planes 2: use 1, or 3 for high availability"},
		"Twice":        {[]string{"--config", "-", "--workers", "1"}, "error: the nodes stand in the file of --config: leave --control-planes and --workers out"},
		"OtherFlags":   {[]string{"--dir", "d", "--port", "1"}, "error: --dir is for --provider local; --port is for --provider local"},
		"LocalWorkers": {[]string{"--provider", "local", "--workers", "1"}, "error: --workers is for --provider docker"},
		"Provider":     {[]string{"--provider", "podman"}, `error: --provider "podman": use docker or local`},
		"Level":        {[]string{"--pod-security=strict"}, `error: podSecurity: Unsupported value: "strict"`},
		"DockerLevel":  {[]string{"--pod-security=baseline", "--config", "-"}, "docker from-file control-plane worker wait 1m0s baseline"},
		"BadName":      {[]string{"Big"}, `error: metadata.name: Invalid value: "Big": a lowercase RFC 1123 label`},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			f := newFactory(IO{In: strings.NewReader(file)})
			cmd := newClusterCreate(f, func(_ context.Context, o docker.Options) error {
				got = "docker " + o.Cluster.Metadata.Name
				for _, n := range o.Cluster.Nodes {
					got += " " + string(n.Role)
				}
				got += fmt.Sprint(" wait ", o.Wait, " ", o.Cluster.PodSecurity)
				return nil
			}, func(_ context.Context, cfg local.Config) error {
				got = fmt.Sprint("local ", cfg.Dir, " wait ", cfg.Wait, " ", cfg.PodSecurity)
				return nil
			})
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			cmd.SetArgs(tc.args)
			if err := cmd.ExecuteContext(t.Context()); err != nil {
				got = "error: " + err.Error()
			}
			if !strings.HasPrefix(got, tc.want) {
				t.Errorf("(-want +got):\n%s", cmp.Diff(tc.want, got))
			}
		})
	}
}

func TestClusterListShowsBothProviders(t *testing.T) {
	var out, complaints bytes.Buffer
	run := func(inDocker []docker.Found, noEngine error, here []local.Found) string {
		t.Helper()
		out.Reset()
		complaints.Reset()
		cmd := newClusterList(IO{Out: &out, Err: &complaints},
			func(ctx context.Context) ([]docker.Found, error) {
				if at, ok := ctx.Deadline(); !ok || time.Until(at) > time.Minute {
					t.Error("an engine that hangs would hang the list")
				}
				return inDocker, noEngine
			},
			func(string) ([]local.Found, error) { return here, nil })
		cmd.SetArgs(nil)
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	want := `NAME             PROVIDER   RUNNING  CONTEXT OR KUBECONFIG
ci               docker     1/2      podium-ci
podium           local      6/6      /x/kubeconfig
`
	got := run([]docker.Found{{Name: "ci", Nodes: []docker.NodeState{{State: "running"}, {State: "exited"}}}}, nil,
		[]local.Found{{Name: "podium", Running: 6, Processes: 6, Kubeconfig: "/x/kubeconfig"}})
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	run(nil, errors.New("docker is not installed"), []local.Found{{Name: "podium"}})
	if complaints.Len() > 0 {
		t.Errorf("who has no engine is bothered with it: %s", &complaints)
	}
	run(nil, errors.New("docker is not installed"), nil)
	if d := cmp.Diff("No clusters found. Bring one up with: podium cluster create\nDocker was not looked at: docker is not installed\n", complaints.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
