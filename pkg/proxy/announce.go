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

	"podium/pkg/l2announce"
	"podium/pkg/proxy/iptables"
)

// announcer returns the announcer of load-balancer addresses. It uses the proxy's
// informers and is ready when the proxy's rules are. Call it before Run.
func (p *Proxy) announcer(cfg l2announce.Config) (*l2announce.Announcer, error) {
	cfg.Node, cfg.Client, cfg.Events, cfg.Log = p.cfg.Node, p.cfg.Client, p.cfg.Events, p.cfg.Log
	cfg.Ready, cfg.Ours = p.Healthy, p.SetAnnounced
	cfg.Service = func(namespace, service string) (*corev1.Service, []*discoveryv1.EndpointSlice) {
		svc, _ := p.services.Get(namespace, service)
		return svc, p.slices.By(byService, name{namespace, service}.String())
	}
	a, err := l2announce.New(cfg)
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

// announced is the contributor name of the rules for announced addresses.
const announced = iptables.Last + "announced"

// SetAnnounced makes the next sync reject traffic to the addresses that is not for a
// Service, since this node may get them on its interface. It sorts addresses. It is
// safe for concurrent use.
func (p *Proxy) SetAnnounced(addresses []netip.Addr) {
	slices.SortFunc(addresses, netip.Addr.Compare)
	p.podMu.Lock()
	p.announced, p.reannounced = addresses, true
	p.podMu.Unlock()
	p.pending.note(func(*batch) {})
}

// machineStops reports whether the machine is shutting down, according to systemd.
func machineStops() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	out, _ := exec.CommandContext(ctx, "systemctl", "is-system-running").Output() // the output tells more than the exit status
	return strings.TrimSpace(string(out)) == "stopping"
}
