package proxy

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

func TestFlagsThatCannotBeHonoured(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"NftablesIsNotThere":   {[]string{"--proxy-mode=nftables"}, "--proxy-mode=nftables is not available: use iptables"},
		"NorIPVS":              {[]string{"--proxy-mode=ipvs"}, "--proxy-mode=ipvs is not available"},
		"DualStack":            {[]string{"--cluster-cidr=10.244.0.0/16,fd00::/56"}, "dual-stack is not supported"},
		"TwoFamilies":          {[]string{"--cluster-cidr=fd00::/56", "--nodeport-addresses=192.0.2.0/24"}, "only IPv6 is proxied"},
		"PodNetwork":           {[]string{"--pod-network=bridge"}, "--pod-network=bridge"},
		"BridgeName":           {[]string{"--bridge-name=../etc"}, "--bridge-name"},
		"DetectWithoutCIDR":    {[]string{"--detect-local-mode=ClusterCIDR"}, "needs --cluster-cidr"},
		"DetectWithoutBridge":  {[]string{"--detect-local-mode=BridgeInterface"}, "--pod-bridge-interface"},
		"Address":              {[]string{"--healthz-bind-address=here"}, "--healthz-bind-address"},
		"EverythingAtOnce":     {[]string{"--proxy-mode=x", "--pod-network=y"}, "--pod-network=y"},
		"MetadataAddress":      {[]string{"--block-metadata-addresses=169.254.0.0/16"}, "--block-metadata-addresses"},
		"NodePortAddressRange": {[]string{"--nodeport-addresses=192.0.2.1"}, "--nodeport-addresses"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := NewCommand()
			cmd.SetArgs(tc.args)
			cmd.SetOut(&bytes.Buffer{})
			cmd.SetErr(&bytes.Buffer{})
			cmd.SilenceUsage = true
			err := cmd.ExecuteContext(context.Background())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
