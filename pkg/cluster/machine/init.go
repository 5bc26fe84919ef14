package machine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
	"podium/pkg/cluster/addons"
	"podium/pkg/cluster/poll"
	"podium/pkg/cluster/progress"
)

// machine is a completed and valid Config with the host that it applies to.
type machine struct {
	Config
	host Host

	entry   string // the server that join was called with; "" on other commands
	renewed bool   // a file that running daemons have read has changed: start restarts them
}

// step is a part of a command for which progress is shown. run reports what it
// waits for by waiting.
type step struct {
	name string
	run  func(ctx context.Context, waiting func(string)) error
}

func plain(f func(context.Context) error) func(context.Context, func(string)) error {
	return func(ctx context.Context, _ func(string)) error { return f(ctx) }
}

// newMachine completes cfg from the host and validates it. It changes nothing
// on the machine.
func newMachine(cfg Config, host Host) (*machine, error) {
	if err := cfg.complete(host); err != nil {
		return nil, err
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &machine{Config: cfg, host: host}, nil
}

// do runs the steps in order and stops at the first error. It prints done when
// all have succeeded.
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

// InitOptions are optional parts of Init.
type InitOptions struct {
	UploadCerts bool // share the PKI, encrypted, so that further control planes can join
}

// Init makes this machine the first control plane of a cluster, blocks until
// the node is Ready, and prints the command that joins another machine. It is
// idempotent: after a failure, call it again.
func Init(ctx context.Context, cfg Config, host Host, o InitOptions) error {
	m, err := newMachine(cfg, host)
	if err != nil {
		return err
	}
	err = m.do(ctx, "the control plane is up",
		step{"preflight checks", plain(func(ctx context.Context) error { return m.preflight(ctx, controlPlaneChecks(m.Port)) })},
		step{"certificates and kubeconfigs", plain(func(context.Context) error { return errors.Join(m.saveConfig(), m.identities(), m.keepCloudConfig()) })},
		step{"containerd set up", plain(m.runtime)},
		step{"units started", plain(func(ctx context.Context) error { return m.start(ctx, append(m.controlPlane(), m.node()...)) })},
		step{"images loaded", m.images},
		step{"kube-apiserver ready", m.apiserverReady},
		step{"marked as control plane", m.markControlPlane},
		step{"settings for other machines", plain(m.upload)},
		step{"cluster-dns applied", plain(m.applyDNS)},
		step{"metrics-server applied", plain(m.applyMetrics)},
		step{"storage class created", plain(func(ctx context.Context) error { return m.createStorageClass(ctx, true) })},
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

// applyDNS applies the cluster DNS add-on. It does not wait for its pods.
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

// applyMetrics applies the add-on metrics-server, which trusts the kubelets that the
// API servers trust. It does not wait for its pod.
func (m *machine) applyMetrics(ctx context.Context) error {
	cl, err := m.admin()
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(m.at(pkiDir, kubeletBundle))
	if err != nil {
		return err
	}
	return addons.ApplyMetrics(ctx, cl, addons.Metrics{KubeletCA: ca})
}

// createStorageClass creates the StorageClass local-path, if it was never created.
func (m *machine) createStorageClass(ctx context.Context, newCluster bool) error {
	cl, err := m.admin()
	if err != nil {
		return err
	}
	return addons.CreateStorageClass(ctx, cl, newCluster)
}

// apiserverReady waits until this machine's own apiserver is ready, regardless
// of others.
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

// nodeReady waits until this machine's node is Ready.
func (m *machine) nodeReady(ctx context.Context, waiting func(string)) error {
	cl, err := m.admin()
	if err != nil {
		return err
	}
	return m.wait(ctx, waiting, poll.Node(cl, m.Node, m.up), m.nodeNeeds()...)
}

// up returns nil if the node is as ready as the configuration allows: with
// PodNetwork "none" it stays NotReady until an add-on provides a pod network.
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
