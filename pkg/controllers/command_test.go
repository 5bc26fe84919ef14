package controllers

import (
	"context"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	certificatesv1 "k8s.io/api/certificates/v1"

	"podium/pkg/cluster/pki"
)

func TestFlagsAreChecked(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"unknown controller":   {[]string{"--controllers=*,-cronjob"}, `"-cronjob" is not a controller`},
		"bad range":            {[]string{"--cluster-cidr=10.0.0.0"}, "--cluster-cidr"},
		"two of one family":    {[]string{"--cluster-cidr=10.0.0.0/16,10.1.0.0/16"}, "one for IPv4 and one for IPv6"},
		"slices too big":       {[]string{"--max-endpoints-per-slice=2000"}, "1 to 1000"},
		"no such CA":           {[]string{"--root-ca-file=/nowhere/ca.crt"}, "--root-ca-file"},
		"a CA for all and one": {[]string{"--cluster-signing-cert-file=a", "--cluster-signing-key-file=b", "--cluster-signing-kubelet-serving-cert-file=c", "--cluster-signing-kubelet-serving-key-file=d"}, "cannot specify --cluster-signing-{cert,key}-file and other --cluster-signing-*-file flags at the same time"},
		"a CA without its key": {[]string{"--cluster-signing-kubelet-serving-cert-file=c"}, "--cluster-signing-kubelet-serving-key-file must be given together"},
		"several at a time":    {[]string{"--node-monitor-grace-period=0s", "--max-endpoints-per-slice=0"}, "must be above 0"},
		"an argument too many": {[]string{"now"}, "unknown command"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cmd := NewCommand()
			cmd.SetArgs(tc.args)
			cmd.SilenceUsage, cmd.SilenceErrors = true, true
			err := cmd.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want something about %q", err, tc.want)
			}
		})
	}
}

// Each signer signs with its own CA only.
func TestSignersHaveAuthoritiesOfTheirOwn(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"ca", "kubelet-ca"} {
		if _, err := pki.OpenAuthority(dir, name, time.Now); err != nil {
			t.Fatal(err)
		}
	}
	flags := func(signer, name string) []string {
		certFile, keyFile := pki.Files(dir, name)
		return []string{"--cluster-signing" + signer + "-cert-file=" + certFile, "--cluster-signing" + signer + "-key-file=" + keyFile}
	}
	for name, row := range map[string]struct {
		args []string
		want map[string]string
	}{
		"one for all": {flags("", "ca"), map[string]string{
			certificatesv1.KubeletServingSignerName: "ca", certificatesv1.KubeAPIServerClientKubeletSignerName: "ca",
			certificatesv1.KubeAPIServerClientSignerName: "ca", "kubernetes.io/legacy-unknown": "ca"}},
		"one for some": {append(flags("-kubelet-serving", "kubelet-ca"), flags("-kubelet-client", "ca")...), map[string]string{
			certificatesv1.KubeletServingSignerName: "kubelet-ca", certificatesv1.KubeAPIServerClientKubeletSignerName: "ca"}},
		"none": {nil, map[string]string{}},
	} {
		o := &options{cfg: Default()}
		fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
		o.signing.add(fs, &o.cfg.Signing)
		if err := errors.Join(fs.Parse(row.args), o.signing.complete(&o.cfg.Signing)); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for signer, authority := range o.cfg.Signing.Authorities {
			cert, err := x509.ParseCertificate(authority().Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			got[signer] = cert.Subject.CommonName
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestConfigFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kcm.yaml")
	text := "apiVersion: config.podium.dev/v1alpha1\nkind: KubeControllerManagerConfiguration\nclusterCIDR: [10.9.0.0/16]\nnodeCIDRMaskSize: 25\nconcurrentGCSyncs: 3\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := NewCommand()
	cmd.SetArgs([]string{"--config", file, "--concurrent-gc-syncs", "7", "--kubeconfig", "/nowhere"})
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	if err := cmd.ExecuteContext(context.Background()); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Fatalf("it should get as far as the kubeconfig: %v", err)
	}
	for flag, want := range map[string]string{"cluster-cidr": "[10.9.0.0/16]", "node-cidr-mask-size": "25", "concurrent-gc-syncs": "7"} {
		if got := cmd.Flags().Lookup(flag).Value.String(); got != want {
			t.Errorf("--%s is %s, want %s", flag, got, want)
		}
	}
}
