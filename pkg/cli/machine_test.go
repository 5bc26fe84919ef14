package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"podium/pkg/cluster/machine"
)

// TestJoinFlags checks that flags for control planes require --control-plane.
func TestJoinFlags(t *testing.T) {
	one := filepath.Join(t.TempDir(), "one")
	if err := os.WriteFile(one, []byte(" single\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		args string
		want string // the resulting options, or the error
	}{
		"Worker":       {"a:6443 --token t --discovery-token-ca-cert-hash sha256:h", "a:6443 t [sha256:h] plane false key \"\" port 6443 sans []"},
		"ControlPlane": {"a:6443 --token t --control-plane --certificate-key k --apiserver-bind-port 7443 --apiserver-cert-extra-sans x,y", "a:6443 t [] plane true key \"k\" port 7443 sans [x y]"},
		"PortOfNobody": {"a:6443 --token t --apiserver-bind-port 7443 --control-plane-placement shared", "--apiserver-bind-port, --control-plane-placement: only with --control-plane"},
		"NoEndpoint":   {"--token t", "accepts 1 arg(s), received 0"},

		"Piped":       {"a:6443 --token-file - --discovery-token-ca-cert-hash sha256:h", "standard input: want a word for --token, in this order, and nothing else; found 2"},
		"PipedBoth":   {"a:6443 --control-plane --certificate-key-file - --token-file -", "a:6443 one [] plane true key \"two\" port 6443 sans []"},
		"FileAndPipe": {"a:6443 --control-plane --certificate-key-file " + one + " --token three", "a:6443 three [] plane true key \"single\" port 6443 sans []"},
		"Twice":       {"a:6443 --token t --token-file -", "--token and --token-file are given: use one of them"},
		"NoFile":      {"a:6443 --token-file /nowhere", "--token-file: open /nowhere: no such file or directory"},
		"EmptyFile":   {"a:6443 --token-file /dev/null", "--token-file /dev/null: want one word and nothing else; found 0"},
		"Endless":     {"a:6443 --token-file /dev/zero", "--token-file /dev/zero: it is longer than any credential"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			cmd := newJoin(IO{In: strings.NewReader("one\ntwo\n"), Out: io.Discard}, func(_ context.Context, cfg machine.Config, _ machine.Host, o machine.JoinOptions) error {
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

// TestTokensAreNoWords checks that a token is read from standard input only:
// other users can see arguments.
func TestTokensAreNoWords(t *testing.T) {
	for args, want := range map[string]string{
		"-":      "abcdef.0123456789abcdef",
		"":       "",
		"abcdef": "a token is not given as a word, which others on this machine can see (ps): podium token create -, and the token on standard input",
	} {
		got := ""
		cmd := newTokenCreate(IO{In: strings.NewReader("abcdef.0123456789abcdef\n"), Out: io.Discard}, func(_ context.Context, _ machine.Config, _ machine.Host, o machine.TokenOptions) error {
			got = o.Token
			return nil
		})
		cmd.SetArgs(strings.Fields(args))
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.Execute(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("token create %s: got %q, want %q", args, got, want)
		}
	}
}
