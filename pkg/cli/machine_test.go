package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"podium/pkg/cluster/machine"
)

// TestJoinFlags: what says how a control plane is, is for those that are one.
func TestJoinFlags(t *testing.T) {
	for name, row := range map[string]struct {
		args string
		want string // what is asked for, or the complaint
	}{
		"Worker":       {"a:6443 --token t --discovery-token-ca-cert-hash sha256:h", "a:6443 t [sha256:h] plane false key \"\" port 6443 sans []"},
		"ControlPlane": {"a:6443 --token t --control-plane --certificate-key k --apiserver-bind-port 7443 --apiserver-cert-extra-sans x,y", "a:6443 t [] plane true key \"k\" port 7443 sans [x y]"},
		"PortOfNobody": {"a:6443 --token t --apiserver-bind-port 7443 --control-plane-placement shared", "--apiserver-bind-port, --control-plane-placement: only with --control-plane"},
		"NoEndpoint":   {"--token t", "accepts 1 arg(s), received 0"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			cmd := newJoin(IO{Out: io.Discard}, func(_ context.Context, cfg machine.Config, _ machine.Host, o machine.JoinOptions) error {
				got = fmt.Sprintf("%s %s %v plane %t key %q port %d sans %v", cfg.Endpoint, o.Token, o.Hashes, o.ControlPlane, o.CertificateKey, cfg.Port, cfg.CertSANs)
				return nil
			})
			cmd.SetArgs(strings.Fields(row.args))
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			if err := cmd.Execute(); err != nil {
				got = err.Error()
			}
			if got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}
