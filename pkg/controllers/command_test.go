package controllers

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
