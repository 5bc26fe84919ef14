package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"podium/api/config/v1alpha1"
	"podium/pkg/cluster/progress"
)

// rollbackTimeout is the timeout of the clean-up after a failed or interrupted
// creation.
const rollbackTimeout = time.Minute

// creation is one call of Create.
type creation struct {
	Options
	nodes   []*node
	verbose io.Writer // receives the output of Options.Verbose
}

// Create creates the cluster and adds it to the kubeconfig. With o.Wait > 0 it
// blocks until the nodes are Ready and cluster DNS is available. If something
// fails it removes what it has created, unless o.Retain is set.
func Create(ctx context.Context, o Options) error {
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.Image == "" {
		o.Image = DefaultImage
	}
	file, err := kubeconfigFile(o.Kubeconfig)
	if err != nil {
		return err
	}
	o.Kubeconfig = file
	c := &creation{Options: o, verbose: io.Discard}
	if o.Verbose {
		c.verbose = newIndent(o.Out)
		c.Engine.Trace = func(args []string, took time.Duration) {
			fmt.Fprintf(c.verbose, "docker %-46s %6.2fs\n", shown(args), took.Seconds())
		}
	}
	if c.nodes, err = c.Options.nodes(); err != nil {
		return err
	}
	steps := progress.Start(o.Out)
	if err := steps.Do(ctx, "engine, image and name checked", c.checked); err != nil {
		return err // nothing was created
	}
	if err := c.make(ctx, steps); err != nil {
		return c.undo(ctx, err)
	}
	steps.Total("cluster " + o.Cluster.Metadata.Name + " is up")
	return nil
}

func (c *creation) checked(ctx context.Context, _ func(string)) error { return c.check(ctx, c.nodes) }

// make runs the steps of a creation after the preflight checks.
func (c *creation) make(ctx context.Context, steps *progress.Steps) error {
	type step struct {
		name string
		run  func(context.Context, func(string)) error
	}
	all := []step{
		{"network", func(ctx context.Context, _ func(string)) error { return c.createNetwork(ctx, c.nodes) }},
		{"node containers started", c.startNodes},
		{"control plane " + c.nodes[0].name, c.initialize},
	}
	if len(c.nodes) > 1 {
		all = append(all, step{fmt.Sprintf("%d more nodes joined", len(c.nodes)-1), c.join})
	}
	all = append(all, step{"kubeconfig written", c.writeKubeconfig})
	if c.Wait > 0 && c.Cluster.Networking.PodNetwork != v1alpha1.PodNetworkNone { // with "none" they wait for an add-on
		all = append(all, step{"nodes Ready", c.nodesReady}, step{"names served", c.namesServed})
	}
	for _, s := range all {
		if err := steps.Do(ctx, s.name, s.run); err != nil {
			return err
		}
	}
	return nil
}

// undo removes what a failed creation has created and returns failed with what
// was done. It works after ctx is cancelled.
func (c *creation) undo(ctx context.Context, failed error) error {
	name := c.Cluster.Metadata.Name
	if c.Retain {
		return fmt.Errorf("%w\n    what was made is kept: podium cluster logs DIR %s, podium cluster delete %[2]s", failed, name)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	c.Engine.Trace = nil
	nodes, err := c.Engine.nodes(ctx, name)
	if err == nil {
		err = errors.Join(c.Engine.removeNodes(ctx, nodes, name), c.Engine.removeNetworks(ctx, name), forget(c.Kubeconfig, name))
	}
	if err != nil {
		return fmt.Errorf("%w\n    what was made could not be removed (podium cluster delete %s): %w", failed, name, err)
	}
	return fmt.Errorf("%w\n    what was made is removed; --retain keeps it, to look into", failed)
}

// each calls do for all nodes concurrently and returns the first error; the
// context of the other calls is then cancelled.
func each(ctx context.Context, nodes []*node, do func(context.Context, *node) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, n := range nodes {
		g.Go(func() error {
			if err := do(ctx, n); err != nil {
				return fmt.Errorf("%s: %w", n.name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

func (c *creation) startNodes(ctx context.Context, _ func(string)) error {
	return each(ctx, c.nodes, c.start)
}

// booted is a shell script that waits until systemd accepts jobs, then executes
// its arguments.
const booted = `until systemctl is-system-running 2>/dev/null | grep -qE 'starting|running|degraded'; do sleep 0.05; done; exec "$@"`

// podium runs a podium command on a node once systemd is up. It reports the
// command's steps by waiting.
func (c *creation) podium(ctx context.Context, n *node, waiting func(string), args ...string) error {
	return c.podiumReading(ctx, n, nil, waiting, args...)
}

// podiumReading is podium with standard input.
func (c *creation) podiumReading(ctx context.Context, n *node, stdin io.Reader, waiting func(string), args ...string) error {
	out := &steps{to: c.verbose, tell: waiting}
	err := c.Engine.run(ctx, stdin, out, append([]string{"exec", "--interactive", n.name, "sh", "-c", booted, "sh", "podium"}, args...)...)
	if err == nil {
		return nil
	}
	if state, _ := c.Engine.node(context.WithoutCancel(ctx), n.name); state.State != "running" && ctx.Err() == nil {
		console, _ := c.Engine.output(context.WithoutCancel(ctx), "logs", "--tail", "20", n.name)
		return fmt.Errorf("the node's container is %s; its last words:\n%s", state.State, console)
	}
	return err
}

// initialize runs podium init on the first node.
func (c *creation) initialize(ctx context.Context, waiting func(string)) error {
	first := c.nodes[0]
	net := c.Cluster.Networking
	args := append([]string{"init",
		"--cluster-name", c.Cluster.Metadata.Name,
		"--pod-network-cidr", net.PodSubnet,
		"--pod-network", net.PodNetwork,
		"--service-cidr", net.ServiceSubnet,
		"--service-dns-domain", net.DNSDomain,
		"--pod-security", c.Cluster.PodSecurity,
	}, c.controlPlaneArgs()...)
	if c.Cluster.CloudProvider == v1alpha1.CloudDocker {
		args = append(args, "--cloud-provider", v1alpha1.CloudDocker)
	}
	return c.podium(ctx, first, waiting, append(args, c.nodeArgs(first)...)...)
}

// controlPlaneArgs returns the arguments that init and a control plane's join
// have in common.
func (c *creation) controlPlaneArgs() []string {
	placement := "dedicated"
	if !slices.ContainsFunc(c.nodes, func(n *node) bool { return !n.controlPlane() }) {
		placement = "shared" // a cluster without workers runs pods on the control planes
	}
	names := c.Cluster.Networking.APIServerAddress
	if c.remote != "" {
		names += "," + c.remote
	}
	return []string{"--control-plane-placement", placement, "--apiserver-cert-extra-sans", names}
}

// nodeArgs returns the arguments of init and join that describe a node, and the
// timeout.
func (o *Options) nodeArgs(n *node) []string {
	args := []string{"--node-name", n.name, "--node-ip", n.address}
	if len(n.Labels) > 0 {
		args = append(args, "--node-labels", pairs(n.Labels))
	}
	for _, t := range n.Taints {
		args = append(args, "--node-taints", t.ToString())
	}
	if list := quantities(n.KubeReserved); list != "" {
		args = append(args, "--kube-reserved", list)
	}
	if list := quantities(n.SystemReserved); list != "" {
		args = append(args, "--system-reserved", list)
	}
	if o.Wait > 0 {
		args = append(args, "--wait", o.Wait.String())
	}
	return args
}

func (c *creation) writeKubeconfig(ctx context.Context, _ func(string)) error {
	config, err := c.Engine.Kubeconfig(ctx, c.Cluster.Metadata.Name)
	if err != nil {
		return err
	}
	return remember(c.Kubeconfig, config)
}

// shown returns a short form of a docker command for Options.Verbose.
func shown(args []string) string {
	text := strings.Join(args, " ")
	if args[0] == "run" || args[0] == "exec" {
		text = args[0] + " …"
		for i, a := range args {
			if a == "--name" {
				text = args[0] + " " + args[i+1]
			}
		}
		if args[0] == "exec" {
			text = "exec " + args[slices.IndexFunc(args[1:], func(a string) bool { return !strings.HasPrefix(a, "-") })+1]
		}
	}
	if r := []rune(text); len(r) > 46 {
		text = string(r[:45]) + "…"
	}
	return text
}
