package proxy

import (
	"context"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"podium/pkg/announce"
	"podium/pkg/proxy/iptables"
)

// announcer makes what announces addresses of load balancers here: it looks at
// the Services as the rules do, and waits for them. To be called before Run.
func (p *Proxy) announcer(cfg announce.Config) (*announce.Announcer, error) {
	cfg.Node, cfg.Client, cfg.Events, cfg.Log = p.cfg.Node, p.cfg.Client, p.cfg.Events, p.cfg.Log
	cfg.Ready, cfg.Ours = p.Healthy, p.SetAnnounced
	cfg.Service = func(namespace, service string) (*corev1.Service, []*discoveryv1.EndpointSlice) {
		svc, _ := p.services.Get(namespace, service)
		return svc, p.slices.By(byService, name{namespace, service}.String())
	}
	a, err := announce.New(cfg)
	if err != nil {
		return nil, err
	}
	p.services.OnChange(func(old, new *corev1.Service) {
		for _, s := range []*corev1.Service{old, new} {
			if s != nil {
				a.Wake(s.Namespace, s.Name)
			}
		}
	})
	p.slices.OnChange(func(old, new *discoveryv1.EndpointSlice) {
		for _, s := range []*discoveryv1.EndpointSlice{old, new} {
			if s != nil {
				of := serviceOf(s)
				a.Wake(of.namespace, of.name)
			}
		}
	})
	return a, nil
}

// announced is the contributor of the rules for announced addresses.
const announced = iptables.Last + "announced"

// SetAnnounced has the next sync close what is not a Service's at addresses
// that this node may get onto its interface. Safe for concurrent use.
func (p *Proxy) SetAnnounced(addresses []netip.Addr) {
	slices.SortFunc(addresses, netip.Addr.Compare)
	p.podMu.Lock()
	p.announced, p.reannounced = addresses, true
	p.podMu.Unlock()
	p.pending.note(func(*batch) {})
}

// machineStops says whether the machine is going down, as far as systemd knows.
func machineStops() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	out, _ := exec.CommandContext(ctx, "systemctl", "is-system-running").Output() // its status says no more than its output
	return strings.TrimSpace(string(out)) == "stopping"
}
