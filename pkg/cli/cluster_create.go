package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"podium/api/config/v1alpha1"
	"podium/pkg/cluster/docker"
	"podium/pkg/cluster/local"
)

// clusterOptions are the flags of cluster create.
type clusterOptions struct {
	*Factory
	provider providerFlags
	docker   docker.Options
	local    local.Config

	name            string
	podSecurity     string
	config          string
	planes, workers int
	cloud           string
	images          string
	wait            time.Duration
}

func newClusterCreate(f *Factory, inDocker func(context.Context, docker.Options) error, here func(context.Context, local.Config) error) *cobra.Command {
	o := &clusterOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "create [NAME]",
		Short: "Create a cluster of containers, or of processes on this machine",
		Long: `Create a cluster whose nodes are containers of a Docker engine, each a small
machine with systemd, and set the kubeconfig's context to it. --config names a
file that says more of the nodes: their labels, taints, mounts, ports of the
host and reservations (kind Cluster of config.podium.dev/v1alpha1).

With --provider local the daemons and a containerd of their own run as
processes of this machine, as root, with all they need in one folder. Called
again it brings the cluster back to what its flags say: what runs and fits is
left alone, what is missing or has died is started.`,
		Example: `  podium cluster create --workers 2
  podium cluster create ci --config deploy/examples/cluster.yaml --wait 2m
  podium cluster create --provider local --dir /var/lib/podium`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.provider.check(cmd.Flags()); err != nil {
				return err
			}
			if len(args) == 1 {
				o.name = args[0]
			}
			if o.provider.provider == providerLocal {
				cfg, err := o.localConfig()
				if err != nil {
					return err
				}
				return here(cmd.Context(), cfg)
			}
			options, err := o.dockerOptions(cmd.Flags())
			if err != nil {
				return err
			}
			return inDocker(cmd.Context(), options)
		},
	}
	o.flags(cmd.Flags())
	return cmd
}

func (o *clusterOptions) flags(fs *pflag.FlagSet) {
	o.provider.add(fs)
	fs.DurationVar(&o.wait, "wait", time.Minute, "how long to wait for the nodes to be Ready; with docker, 0: do not wait")
	fs.StringVar(&o.podSecurity, "pod-security", "", podSecurityUsage+" (with docker, the file of --config may set it)")
	o.provider.of(providerDocker, fs, func(fs *pflag.FlagSet) {
		fs.IntVar(&o.planes, "control-planes", 1, "docker: number of control-plane nodes: 1, or 3 for high availability")
		fs.IntVar(&o.workers, "workers", 0, "docker: number of worker nodes; without workers the control plane runs the pods")
		fs.StringVar(&o.cloud, "cloud-provider", "", "docker: docker (cloud-controller-manager reads nodes from the engine, and Services of type LoadBalancer get addresses) or none (default: that of the file of --config, else none)")
		fs.StringVar(&o.config, "config", "", "docker: configuration file of the cluster; -: standard input")
		fs.StringVar(&o.docker.Image, "image", os.Getenv("NODE_IMAGE"), "docker: image of the nodes (default: $NODE_IMAGE, else "+docker.DefaultImage+")")
		fs.BoolVar(&o.docker.Retain, "retain", false, "docker: keep the containers when the creation fails")
		fs.BoolVar(&o.docker.Verbose, "verbose", false, "docker: show each command and its duration; short: -v")
		fs.BoolVarP(&o.docker.Verbose, "v", "v", false, "docker: the same as --verbose") // hides the global -v
	})
	o.provider.of(providerLocal, fs, localFlags(&o.local))
	o.provider.of(providerLocal, fs, func(fs *pflag.FlagSet) {
		fs.StringVar(&o.images, "images", "_images", "local: directory of image archives (*.tar) to load")
		fs.StringVar(&o.local.Node, "node-name", "", "local: name of the node (default: the host name)")
		fs.StringVar(&o.local.NodeIP, "node-ip", "", "local: IP address of the node (default: that of the default route)")
		fs.IntVar(&o.local.Port, "port", 6443, "local: port of the apiserver")
		fs.StringArrayVar(&o.local.Extra, "extra-config", nil, "local: flag of a daemon, as DAEMON.FLAG=VALUE (kube-apiserver.etcd-compaction-interval=1m); may be repeated")
	})
}

func (o *clusterOptions) localConfig() (local.Config, error) {
	cfg := o.local
	cfg.Name, cfg.Wait, cfg.Out, cfg.PodSecurity = o.name, o.wait, o.Out, o.podSecurity
	images, err := filepath.Glob(filepath.Join(o.images, "*.tar"))
	if err != nil {
		return cfg, fmt.Errorf("--images %q: %w", o.images, err)
	}
	cfg.Images = images
	return cfg, nil
}

func (o *clusterOptions) dockerOptions(fs *pflag.FlagSet) (docker.Options, error) {
	options := o.docker
	options.Wait, options.Out, options.Kubeconfig = o.wait, o.Out, o.conn.kubeconfig
	cluster, err := o.cluster(fs)
	options.Cluster = cluster
	return options, err
}

// cluster returns the cluster of the file, or one with the numbers of nodes in
// the flags.
func (o *clusterOptions) cluster(fs *pflag.FlagSet) (*v1alpha1.Cluster, error) {
	if o.config != "" {
		if fs.Changed("control-planes") || fs.Changed("workers") {
			return nil, errors.New("the nodes stand in the file of --config: leave --control-planes and --workers out")
		}
		return o.readConfig()
	}
	if o.workers < 0 {
		return nil, fmt.Errorf("--workers %d: there cannot be less than none", o.workers)
	}
	if o.planes != 1 && o.planes != 3 {
		return nil, fmt.Errorf("--control-planes %d: use 1, or 3 for high availability", o.planes)
	}
	c := &v1alpha1.Cluster{Metadata: v1alpha1.Metadata{Name: o.name}, CloudProvider: o.cloud, PodSecurity: o.podSecurity}
	for range o.planes {
		c.Nodes = append(c.Nodes, v1alpha1.Node{Role: v1alpha1.ControlPlane})
	}
	for range o.workers {
		c.Nodes = append(c.Nodes, v1alpha1.Node{Role: v1alpha1.Worker})
	}
	c.Default()
	return c, v1alpha1.AsError(c.Validate())
}

func (o *clusterOptions) readConfig() (*v1alpha1.Cluster, error) {
	read := os.ReadFile
	if o.config == "-" {
		read = func(string) ([]byte, error) { return readAll(o.In) }
	}
	data, err := read(o.config)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	c, err := v1alpha1.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s:\n%w", o.config, err)
	}
	if o.name == "" && o.cloud == "" && o.podSecurity == "" {
		return c, nil
	}
	c.Metadata.Name = cmp.Or(o.name, c.Metadata.Name)
	c.CloudProvider = cmp.Or(o.cloud, c.CloudProvider)
	c.PodSecurity = cmp.Or(o.podSecurity, c.PodSecurity)
	return c, v1alpha1.AsError(c.Validate())
}
