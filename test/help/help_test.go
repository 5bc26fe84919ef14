package help

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"podium/pkg/apiserver"
	cloud "podium/pkg/cloud/manager"
	"podium/pkg/controllers"
	"podium/pkg/dns"
	"podium/pkg/kubelet"
	"podium/pkg/metricsserver"
	"podium/pkg/proxy"
	"podium/pkg/scheduler"
)

var update = flag.Bool("update", false, "write the files in testdata")

// Flags, their defaults and the keys of configuration files are part of the API of
// each daemon: a change must be meant, and shows in testdata.
func TestHelp(t *testing.T) {
	for _, command := range []func() *cobra.Command{
		apiserver.NewCommand, cloud.NewCommand, controllers.NewCommand, dns.NewCommand, kubelet.NewCommand, metricsserver.NewCommand, proxy.NewCommand, scheduler.NewCommand,
	} {
		cmd := command()
		t.Run(cmd.Name(), func(t *testing.T) {
			var got bytes.Buffer
			cmd.SetOut(&got)
			cmd.SetArgs([]string{"--help"})
			if err := cmd.Execute(); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", cmd.Name()+".txt")
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("--help differs (-want +got); if this is intended, run go test ./test/help -update:\n%s", diff)
			}
		})
	}
}
