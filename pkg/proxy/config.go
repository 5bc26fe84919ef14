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
	"podium/pkg/proxy/conntrack"
	"podium/pkg/proxy/iptables"
	"podium/pkg/proxy/rules"
	"podium/pkg/proxy/services"
)

// Config is what a proxy works with. The interfaces reach outside the process
// and are replaced in tests.
type Config struct {
	Node   string // this node's name
	Client *client.Client
	Events *events.Recorder // nil: events are dropped
	Log    *slog.Logger

	Registry  *prometheus.Registry
	Kernel    iptables.Kernel
	Conntrack conntrack.Table // nil: tracked flows are left alone
	Health    HealthPorts     // nil: health check node ports are not served

	// PodHooks lead into the chains of the pod network's rules (SetPodRules).
	PodHooks []rules.Hook

	Rules RuleOptions
	Times Times
}

// RuleOptions are the choices an operator has about rules.
type RuleOptions struct {
	// ClusterCIDR holds every pod of the cluster; what comes from elsewhere is
	// masqueraded when it asks for a cluster IP. It also says whether IPv4 or
	// IPv6 is proxied. Zero: not known, and IPv4.
	ClusterCIDR netip.Prefix
	// DetectLocal says how pods' packets are known: ClusterCIDR, NodeCIDR,
	// BridgeInterface or InterfaceNamePrefix. Default: ClusterCIDR if it is
	// known, else NodeCIDR.
	DetectLocal string
	// LocalInterface is the bridge, or the prefix of names, for the last two.
	LocalInterface string
	// MasqueradeAll hides every client of a cluster IP behind the node.
	MasqueradeAll bool
	// NodePortAddresses are the local networks that serve node ports; empty: all.
	NodePortAddresses []netip.Prefix
	// LocalhostNodePorts serves node ports on 127.0.0.1 as well.
	LocalhostNodePorts bool
	// PodLinks names the interfaces of pods ("veth+"), where only the pod's own
	// source address is let in; empty: not checked.
	PodLinks string
	// ClosedMetadata are addresses that pods do not reach but for DNS.
	ClosedMetadata []netip.Addr
}

// The values of DetectLocal.
const (
	DetectClusterCIDR     = "ClusterCIDR"
	DetectNodeCIDR        = "NodeCIDR"
	DetectBridge          = "BridgeInterface"
	DetectInterfacePrefix = "InterfaceNamePrefix"
)

// Times are how often things happen. The zero value takes the defaults.
type Times struct {
	MinSync  time.Duration // least time between two writes; the first of a burst is written at once. Default 50ms.
	Sync     time.Duration // how often the kernel is compared with what we wrote. Default 30s.
	Watch    time.Duration // how often we ask whether anybody changed the tables. Default 1s.
	FullSync time.Duration // how often everything is written anew. Default 1h.
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

// Validate reports everything that is wrong at once.
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
			errs = append(errs, fmt.Errorf("--nodeport-addresses: %s: only %s is proxied, as --cluster-cidr says", p, o.Family()))
		}
	}
	return errors.Join(errs...)
}

// Family is the kind of addresses that is proxied: that of the pods.
func (o RuleOptions) Family() services.Family {
	if o.ClusterCIDR.IsValid() {
		return services.FamilyOf(o.ClusterCIDR.Addr())
	}
	return services.IPv4
}

// podTraffic is how rules tell pods' packets from others, given the pod
// network of this node, which may not be known yet.
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
