package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/client"
	"podium/pkg/client/events"
	"podium/pkg/netrules"
	"podium/pkg/proxy/conntrack"
	"podium/pkg/proxy/iptables"
	"podium/pkg/proxy/services"
)

// Config holds the dependencies and settings of a Proxy. Tests replace the
// interfaces.
type Config struct {
	Node   string // this node's name
	Client *client.Client
	Events *events.Recorder // nil: events are dropped
	Log    *slog.Logger

	Registry  *prometheus.Registry
	Kernel    iptables.Kernel
	Conntrack conntrack.Table // nil: no flows are deleted
	Health    HealthPorts     // nil: health check node ports are not served

	// PodHooks are the jumps to the chains of the pod network (SetPodRules).
	PodHooks []netrules.Hook

	Rules RuleOptions
	Times Times
}

// RuleOptions are the settings of an operator for rules.
type RuleOptions struct {
	// ClusterCIDR contains the addresses of all pods. Traffic from elsewhere to a
	// cluster IP is masqueraded. It also determines the address family of the proxy.
	// Zero: unknown, and IPv4.
	ClusterCIDR netip.Prefix
	// DetectLocal is how rules recognize traffic from pods: ClusterCIDR, NodeCIDR,
	// BridgeInterface or InterfaceNamePrefix. Default: ClusterCIDR if it is set, else
	// NodeCIDR.
	DetectLocal string
	// LocalInterface is the bridge or the name prefix for the last two modes.
	LocalInterface string
	// MasqueradeAll masquerades all traffic to cluster IPs.
	MasqueradeAll bool
	// NodePortAddresses are the local networks that serve node ports; empty: all.
	NodePortAddresses []netip.Prefix
	// LocalhostNodePorts serves node ports on 127.0.0.1 too.
	LocalhostNodePorts bool
	// PodLinks matches the interfaces of pods ("veth+"), from which only packets with
	// the pod's own source address are accepted; empty: not checked.
	PodLinks string
	// ClosedMetadata are addresses that pods can reach for DNS only.
	ClosedMetadata []netip.Addr
}

// The values of DetectLocal.
const (
	DetectClusterCIDR     = "ClusterCIDR"
	DetectNodeCIDR        = "NodeCIDR"
	DetectBridge          = "BridgeInterface"
	DetectInterfacePrefix = "InterfaceNamePrefix"
)

// Times are intervals of the proxy. Zero values mean the defaults.
type Times struct {
	MinSync  time.Duration // minimum interval between two writes; the first of a burst is written at once. Default 50ms.
	Sync     time.Duration // how often the kernel's rules are compared with ours. Default 30s.
	Watch    time.Duration // how often to check whether another program changed the tables. Default 1s.
	FullSync time.Duration // how often all rules are rewritten. Default 1h.
	Renew    time.Duration // how often the Lease is renewed. Default 10s.
}

func (t Times) withDefaults() Times {
	set := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	set(&t.Sync, 30*time.Second)
	set(&t.Watch, time.Second)
	set(&t.FullSync, time.Hour)
	set(&t.Renew, leaseRenewal)
	return t
}

// Validate returns all errors, joined.
func (o RuleOptions) Validate() error {
	var errs []error
	switch o.DetectLocal {
	case "", DetectNodeCIDR:
	case DetectClusterCIDR:
		if !o.ClusterCIDR.IsValid() {
			errs = append(errs, errors.New("--detect-local-mode=ClusterCIDR needs --cluster-cidr"))
		}
	case DetectBridge, DetectInterfacePrefix:
		if o.LocalInterface == "" || strings.ContainsAny(o.LocalInterface, " \t\n\"'") {
			errs = append(errs, fmt.Errorf("--detect-local-mode=%s needs the name of the interface (--pod-bridge-interface or --pod-interface-name-prefix), not %q", o.DetectLocal, o.LocalInterface))
		}
	default:
		errs = append(errs, fmt.Errorf("--detect-local-mode=%q: use ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix", o.DetectLocal))
	}
	for _, p := range o.NodePortAddresses {
		if services.FamilyOf(p.Addr()) != o.Family() {
			errs = append(errs, fmt.Errorf("--nodeport-addresses: %s: only %s is proxied (--cluster-cidr)", p, o.Family()))
		}
	}
	return errors.Join(errs...)
}

// Family returns the address family that is proxied: that of the pods.
func (o RuleOptions) Family() services.Family {
	if o.ClusterCIDR.IsValid() {
		return services.FamilyOf(o.ClusterCIDR.Addr())
	}
	return services.IPv4
}

// podTraffic returns the matches for packets from pods and for other packets; both
// are "" if they are unknown. podCIDR is this node's; it may be zero.
func (o RuleOptions) podTraffic(podCIDR netip.Prefix) (match, not string) {
	words := ""
	switch {
	case o.DetectLocal == DetectBridge:
		words = "-i " + o.LocalInterface
	case o.DetectLocal == DetectInterfacePrefix:
		words = "-i " + o.LocalInterface + "+"
	case o.DetectLocal != DetectNodeCIDR && o.ClusterCIDR.IsValid():
		words = "-s " + o.ClusterCIDR.Masked().String()
	case podCIDR.IsValid():
		words = "-s " + podCIDR.Masked().String()
	default:
		return "", ""
	}
	return words, "! " + words
}
