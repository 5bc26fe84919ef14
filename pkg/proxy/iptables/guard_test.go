package iptables_test

import (
	"strings"
	"testing"

	"podium/pkg/netrules"
	"podium/pkg/proxy/iptables"
	"podium/pkg/proxy/services"
)

// The rules that restrict pods. Without the rpfilter match there are no rules in the
// raw table, which such a kernel may not have.
func TestGuard(t *testing.T) {
	const (
		source  = `-i veth+ -m comment --comment "pods send from their own address" -m rpfilter --invert -j DROP`
		aws     = "-s 10.244.0.0/16 -d 169.254.169.254/32 -p udp -m udp --dport 53 -j RETURN"
		aws6    = "-d fd00:ec2::254/128"
		hooked  = "-j KUBE-PODS-SOURCE"
		refused = `-d 169.254.169.254/32 -m comment --comment "the cloud's metadata is not for pods" -j REJECT`
	)
	for name, tc := range map[string]struct {
		change    func(*iptables.Planner)
		want, not []string
	}{
		"All":       {func(*iptables.Planner) {}, []string{source, aws, hooked, refused}, []string{aws6}},
		"IPv6":      {func(p *iptables.Planner) { p.Family, p.PodTraffic = services.IPv6, "-s fd00::/56" }, []string{source, aws6}, []string{"169.254"}},
		"Open":      {func(p *iptables.Planner) { p.PodLinks, p.Metadata = "", nil }, nil, []string{"rpfilter", "REJECT"}},
		"NoMatch":   {func(p *iptables.Planner) { p.Kernel.ReversePath = false }, []string{refused}, []string{"KUBE-PODS-SOURCE"}},
		"NoPodsYet": {func(p *iptables.Planner) { p.PodTraffic = "" }, []string{source}, []string{"REJECT"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &iptables.Planner{PodTraffic: "-s 10.244.0.0/16", PodLinks: "veth+", Metadata: iptables.DefaultMetadata(), Kernel: iptables.AllFeatures()}
			tc.change(p)
			kernel, set := iptables.NewFake(), netrules.NewSet()
			first, _ := p.Base()
			set.Put(iptables.First, first)
			apply(t, kernel, p, set)
			got := dump(kernel)
			for _, text := range tc.want {
				if !strings.Contains(got, text) {
					t.Errorf("without %q:\n%s", text, got)
				}
			}
			for _, text := range tc.not {
				if strings.Contains(got, text) {
					t.Errorf("with %q:\n%s", text, got)
				}
			}
		})
	}
}
