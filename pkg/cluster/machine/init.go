package machine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
	"podium/pkg/cluster/addons"
	"podium/pkg/cluster/poll"
	"podium/pkg/cluster/progress"
)

// machine is a Config at work on a host.
type machine struct {
	Config
	host Host

	entry   string // the server by which a joining machine has come, if that is not Endpoint
	renewed bool   // a kubeconfig has changed under units that may run
}

// step is one of those that a person sees.
type step struct {
	name string
	run  func(ctx context.Context, waiting func(string)) error
}

func plain(f func(context.Context) error) func(context.Context, func(string)) error {
	return func(ctx context.Context, _ func(string)) error { return f(ctx) }
}

func newMachine(cfg Config, host Host) (*machine, error) {
	if err := cfg.complete(host); err != nil {
		return nil, err
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &machine{Config: cfg, host: host}, nil
}

func (m *machine) do(ctx context.Context, done string, steps ...step) error {
	shown := progress.Start(m.Out)
	for _, s := range steps {
		if err := shown.Do(ctx, s.name, s.run); err != nil {
			return err
		}
	}
	shown.Total(done)
	return nil
}

// InitOptions are what init does beside.
type InitOptions struct {
	UploadCerts bool // share the keys, so that further control planes can join
}

// Init makes this machine the first of a cluster. It may be called again at
// any time: it then does what is missing.
func Init(ctx context.Context, cfg Config, host Host, o InitOptions) error {
	m, err := newMachine(cfg, host)
	if err != nil {
		return err
	}
	err = m.do(ctx, "the control plane is up",
		step{"preflight checks", plain(func(ctx context.Context) error { return m.preflight(ctx, controlPlaneChecks(m.Port)) })},
		step{"certificates and kubeconfigs", plain(func(context.Context) error { return errors.Join(m.remember(), m.identities(), m.keepCloudConfig()) })},
		step{"containerd set up", plain(m.runtime)},
		step{"units started", plain(func(ctx context.Context) error { return m.start(ctx, append(m.controlPlane(), m.node()...)) })},
		step{"images loaded", m.images},
		step{"kube-apiserver ready", m.apiserverReady},
		step{"marked as control plane", m.markControlPlane},
		step{"settings for other machines", plain(m.upload)},
		step{"cluster-dns applied", plain(m.applyDNS)},
		step{"node " + m.Node + " Ready", m.nodeReady},
	)
	if err != nil {
		return err
	}
	command, err := m.createToken(ctx, TokenOptions{TTL: joinTTL, Description: "made by podium init", PrintJoin: true})
	if err != nil {
		return fmt.Errorf("make a token for the next machine: %w", err)
	}
	fmt.Fprintf(m.Out, "\nTo drive the cluster from here:\n\n  export KUBECONFIG=%s\n  podium get nodes\n\nTo join another machine, there, as root, within a day:\n\n  %s\n", adminConf, command)
	if !o.UploadCerts {
		return nil
	}
	if command, err = m.uploadCertificates(ctx); err == nil {
		fmt.Fprintf(m.Out, "\nTo join another control plane, there, as root, within two hours, one after the other:\n\n  %s\n", command)
	}
	return err
}

// applyDNS brings the name servers up, on nodes that take them.
func (m *machine) applyDNS(ctx context.Context) error {
	cl, err := m.admin()
	if err != nil {
		return err
	}
	address, err := netip.ParseAddr(m.nth(10))
	if err != nil {
		return err
	}
	return addons.ApplyDNS(ctx, cl, addons.DNS{Address: address, Domain: m.DNSDomain})
}

// apiserverReady asks this machine's own apiserver, whoever else answers.
func (m *machine) apiserverReady(ctx context.Context, waiting func(string)) error {
	cl, err := m.admin()
	if err == nil {
		err = cl.SetServers([]string{m.localServer()})
	}
	if err != nil {
		return err
	}
	return m.wait(ctx, waiting, func(ctx context.Context) error {
		_, _, err := cl.Do(ctx, client.Request{Path: "/readyz"})
		return err
	}, "etcd", "kube-apiserver")
}

func (m *machine) nodeReady(ctx context.Context, waiting func(string)) error {
	cl, err := m.admin()
	if err != nil {
		return err
	}
	nodes := client.For[*corev1.Node](cl)
	return m.wait(ctx, waiting, func(ctx context.Context) error {
		node, err := nodes.Get(ctx, m.Node)
		if err != nil {
			return err
		}
		return m.up(node)
	}, m.nodeNeeds()...)
}

// up says whether a node is what it can be by now: without a pod network of
// ours it stays unready until an add-on has brought one.
func (c *Config) up(node *corev1.Node) error {
	err := poll.NodeReady(node)
	if err != nil && c.PodNetwork == networkNone && len(node.Status.Conditions) > 0 {
		return nil
	}
	if err != nil {
		return err
	}
	return met(node)
}
