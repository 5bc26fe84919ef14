package apiserver_test

import (
	"io"
	"strings"
	"testing"

	"podium/pkg/apiserver"
)

func TestWhatTheCommandRefuses(t *testing.T) {
	const noAddress = "is not an IP address that other machines can reach"
	for name, tc := range map[string]struct {
		reason string
		args   []string
		want   []string
	}{
		"loopback": {
			reason: "a Service's endpoints cannot be loopback: default/kubernetes could never be made",
			args:   []string{"--advertise-address=127.0.0.1"}, want: []string{"--advertise-address=127.0.0.1 " + noAddress},
		},
		"loopback of IPv6": {args: []string{"--advertise-address=::1"}, want: []string{noAddress}},
		"unspecified":      {args: []string{"--advertise-address=0.0.0.0"}, want: []string{noAddress}},
		"a name":           {args: []string{"--advertise-address=localhost"}, want: []string{noAddress}},
		"everything at once": {
			args: []string{"--advertise-address=127.0.0.1", "--tls-cert-file=x", "--etcd-servers=http://127.0.0.1:1"},
			want: []string{noAddress, "--tls-private-key-file", "mutually exclusive"},
		},
		"a service range that is none": {
			args: []string{"--service-cluster-ip-range=x"}, want: []string{`"--service-cluster-ip-range" flag: `},
		},
		"a range that is none": {
			args: []string{"--service-external-ip-ranges=203.0.113.0/24,203.0.113.300/32"}, want: []string{"--service-external-ip-ranges: ", "203.0.113.300/32"},
		},
		"two families": {
			reason: "one family is served, and it is said so",
			args:   []string{"--service-cluster-ip-range=10.96.0.0/16,fd00::/112"}, want: []string{"dual-stack is not supported: give one range"},
		},
		"who asks": {
			reason: "the mistakes of one go are told in one go",
			args: []string{
				"--client-crl-file=x", "--requestheader-client-ca-file=/nowhere/proxy.crt", "--oidc-issuer-url=http://plain",
				"--service-account-issuer=a", "--service-account-issuer=a", "--service-account-max-token-expiration=1m",
				"--service-account-jwks-uri=http://plain", "--authentication-token-webhook-config-file=/nowhere/hook.conf",
			},
			want: []string{
				"--client-crl-file needs --client-ca-file", "--requestheader-client-ca-file: ", "needs --requestheader-username-headers",
				"--oidc-issuer-url=http://plain must begin with https://", "--oidc-client-id", `--service-account-issuer="a" is empty or given twice`,
				"--service-account-max-token-expiration=1m0s must be between an hour", "--service-account-jwks-uri=http://plain must begin", "/nowhere/hook.conf",
			},
		},
		"who may what": {
			args: []string{"--authorization-mode=RBAC,ABAC,RBAC,Webhook", "--authorization-webhook-version=v1beta1"},
			want: []string{`"ABAC" is not a valid mode`, `"RBAC" more than once`, "--authorization-webhook-config-file belong together", "v1beta1"},
		},
		"keys that are none": {args: []string{"--service-account-signing-key-file=/nowhere/sa.key"}, want: []string{"service account keys: ", "/nowhere/sa.key"}},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := apiserver.NewCommand()
			cmd.SetArgs(append([]string{"--data-dir=" + t.TempDir()}, tc.args...))
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			cmd.SetErr(io.Discard)
			err := cmd.ExecuteContext(t.Context())
			for _, text := range tc.want {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("error %v, want %q; %s", err, text, tc.reason)
				}
			}
		})
	}
}
