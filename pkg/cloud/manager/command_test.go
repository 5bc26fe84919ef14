package manager

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"podium/pkg/cloud"
)

func TestFlagsAreChecked(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "cloud.yaml")
	if err := os.WriteFile(bad, []byte("apiVersion: config.podium.dev/v1alpha1\nkind: DockerCloud\nsocket: here\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	api := filepath.Join(t.TempDir(), "kubeconfig")
	config := "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: a, cluster: {server: \"https://127.0.0.1:1\"}}]\nusers: [{name: a, user: {token: t}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"
	if err := os.WriteFile(api, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no provider":         {nil, `--cloud-provider "": use one of baremetal, docker`},
		"unknown provider":    {[]string{"--cloud-provider=aws"}, "use one of baremetal, docker"},
		"no such file":        {[]string{"--cloud-provider=docker", "--cloud-config=/nowhere"}, "--cloud-config"},
		"a file with errors":  {[]string{"--cloud-provider=docker", "--cloud-config=" + bad}, "socket"},
		"unknown controller":  {[]string{"--cloud-provider=docker", "--controllers=route"}, "node-route-controller"},
		"routes without pods": {[]string{"--cloud-provider=docker", "--configure-cloud-routes"}, "needs --cluster-cidr"},
		"bad range":           {[]string{"--cloud-provider=docker", "--cluster-cidr=10.0.0.0"}, "--cluster-cidr"},
		"no time at all":      {[]string{"--cloud-provider=docker", "--node-monitor-period=0s"}, "--node-monitor-period must be above 0"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := NewCommand()
			cmd.SetArgs(append(tc.args, "--kubeconfig", api, "--secure-port", "0"))
			cmd.SilenceUsage, cmd.SilenceErrors = true, true
			err := cmd.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want something about %q", err, tc.want)
			}
		})
	}
}

// A controller is disabled if the provider lacks its part.
func TestControllersFollowTheProvidersParts(t *testing.T) {
	c := Default()
	c.ConfigureRoutes = true
	built := func(p *cloud.Provider) (out []string) {
		for _, m := range specs(&c, p) {
			if m.New != nil {
				out = append(out, m.Name)
			}
		}
		return out
	}
	if got := built(&cloud.Provider{}); got != nil {
		t.Errorf("of a provider without parts: %v", got)
	}
	whole, err := provider("docker", cloud.Setup{ClusterName: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	if got := len(built(whole)); got != 4 {
		t.Errorf("%d controllers, want 4", got)
	}
	c.ConfigureRoutes = false
	if got := len(built(whole)); got != 3 {
		t.Errorf("%d controllers without --configure-cloud-routes, want 3", got)
	}
}
