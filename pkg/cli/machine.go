package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"podium/pkg/cluster/machine"
)

// machineRun implements a command for this machine.
type machineRun func(context.Context, machine.Config, machine.Host) error

// fileRun implements a command for this machine with one argument: a file or a
// name.
type fileRun func(context.Context, machine.Config, machine.Host, string) error

// optionsRun implements a command for this machine with options of its own.
type optionsRun[O any] func(context.Context, machine.Config, machine.Host, O) error

// plain adapts a run without arguments to onMachine.
func plain(run machineRun) func(context.Context, machine.Config, []string) error {
	return func(ctx context.Context, cfg machine.Config, _ []string) error {
		return run(ctx, cfg, machine.ThisHost{})
	}
}

// withArg adapts a run with one argument to onMachine.
func withArg(run fileRun) func(context.Context, machine.Config, []string) error {
	return func(ctx context.Context, cfg machine.Config, args []string) error {
		return run(ctx, cfg, machine.ThisHost{}, args[0])
	}
}

// with adapts a run with options to onMachine. It reads o when the command
// runs, which is after the flags are parsed.
func with[O any](run optionsRun[O], o *O) func(context.Context, machine.Config, []string) error {
	return func(ctx context.Context, cfg machine.Config, _ []string) error {
		return run(ctx, cfg, machine.ThisHost{}, *o)
	}
}

// onMachine completes a command for this machine. run gets a Config with the
// defaults, changed by the flags that are bound to the returned Config. A
// command without Args takes no arguments.
func onMachine(streams IO, cmd *cobra.Command, run func(context.Context, machine.Config, []string) error) (*cobra.Command, *machine.Config) {
	cfg := machine.Default()
	cfg.Out = streams.Out
	if cmd.Args == nil {
		cmd.Args = noArgs
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), cfg, args) }
	return cmd, &cfg
}

// waitFlag adds --wait to commands that start daemons.
func waitFlag(fs *pflag.FlagSet, cfg *machine.Config) {
	fs.DurationVar(&cfg.Wait, "wait", cfg.Wait, "how long to wait for each of: the apiserver, the node")
}

// preflightFlag adds --ignore-preflight-errors.
func preflightFlag(fs *pflag.FlagSet, ignore *[]string) {
	fs.StringSliceVar(ignore, "ignore-preflight-errors", nil, "preflight checks whose errors are shown as warnings; all ignores all checks")
}

func newInit(streams IO, run optionsRun[machine.InitOptions]) *cobra.Command {
	o := machine.InitOptions{}
	cmd, cfg := onMachine(streams, &cobra.Command{
		Use:   "init",
		Short: "Set up this machine as the first control plane of a cluster",
		Long: `Set up this machine, which runs systemd, as the first control plane of a
cluster: run preflight checks, create certificates and configuration below
/etc/podium, start the units of the control plane and of a node, and wait until
all are ready. Steps that are done already are skipped: run a failed init again.`,
	}, with(run, &o))
	fs := cmd.Flags()
	nodeFlags(fs, cfg)
	controlPlaneFlags(fs, cfg)
	fs.StringVar(&cfg.Cluster, "cluster-name", cfg.Cluster, "name of the cluster in kubeconfigs")
	fs.StringVar(&cfg.Endpoint, "control-plane-endpoint", "", "HOST:PORT at which all machines reach an apiserver (default: that of this machine)")
	fs.StringVar(&cfg.PodCIDR, "pod-network-cidr", cfg.PodCIDR, "range of IP addresses for pods (default 10.244.0.0/16, or fd00:10:244::/56 with an IPv6 --node-ip)")
	fs.StringVar(&cfg.PodNetwork, "pod-network", cfg.PodNetwork, "pod network between machines: routes (machines share a link), vxlan (across routers), cloud (the cloud provider routes), or none (an add-on brings it)")
	fs.StringVar(&cfg.ServiceCIDR, "service-cidr", cfg.ServiceCIDR, "range of IP addresses for Services (default 10.96.0.0/16, or fd00:10:96::/112)")
	fs.StringVar(&cfg.Cloud, "cloud-provider", "", "provider of the machines: docker (they are containers), baremetal, or none; control planes then run cloud-controller-manager")
	fs.StringVar(&cfg.CloudConfig, "cloud-config", "", "configuration file of the cloud provider; kept as /etc/podium/pki/cloud.yaml, for further control planes too")
	fs.StringVar(&cfg.PodSecurity, "pod-security", "", podSecurityUsage)
	fs.StringVar(&cfg.DNSDomain, "service-dns-domain", cfg.DNSDomain, "DNS domain of Services")
	fs.BoolVar(&o.UploadCerts, "upload-certs", false, "upload the control-plane keys, encrypted, for two hours, and print the command to join further control planes")
	return cmd
}

const podSecurityUsage = "Pod Security level of namespaces without a label, except kube-system: privileged (default: nothing is restricted), baseline or restricted"

// nodeFlags adds the flags of init and join for this machine as a node.
func nodeFlags(fs *pflag.FlagSet, cfg *machine.Config) {
	fs.StringVar(&cfg.Node, "node-name", "", "name of the node (default: the host name)")
	fs.StringVar(&cfg.NodeIP, "node-ip", "", "IP address of the node (default: that of the default route)")
	fs.StringToStringVar(&cfg.NodeLabels, "node-labels", nil, "labels to register the node with, as key=value,...")
	fs.StringSliceVar(&cfg.NodeTaints, "node-taints", nil, "taints to register the node with, as key=value:effect")
	fs.StringToStringVar(&cfg.KubeReserved, "kube-reserved", nil, "resources reserved for Kubernetes daemons, as cpu=200m,memory=300Mi")
	fs.StringToStringVar(&cfg.SystemReserved, "system-reserved", nil, "resources reserved for other system daemons")
	fs.StringVar(&cfg.CgroupDriver, "cgroup-driver", cfg.CgroupDriver, "cgroup driver: systemd or cgroupfs (default: systemd with cgroup v2)")
	fs.StringVar(&cfg.Runtime, "cri-socket", "", "socket of a container runtime that is already set up (default: Debian's containerd, set up by this command)")
	preflightFlag(fs, &cfg.IgnorePreflight)
	waitFlag(fs, cfg)
}

// controlPlaneFlags adds the flags for this machine as a control plane.
func controlPlaneFlags(fs *pflag.FlagSet, cfg *machine.Config) {
	fs.IntVar(&cfg.Port, "apiserver-bind-port", cfg.Port, "port of the apiserver on this machine")
	fs.StringSliceVar(&cfg.CertSANs, "apiserver-cert-extra-sans", nil, "additional Subject Alternative Names of the apiserver's certificate")
	fs.StringVar((*string)(&cfg.ControlPlane), "control-plane-placement", string(cfg.ControlPlane), "dedicated: taint the node, only pods that tolerate it run here; shared: all pods may run here")
}

func newReset(streams IO, run machineRun) *cobra.Command {
	cmd, _ := onMachine(streams, &cobra.Command{
		Use:   "reset",
		Short: "Revert the changes that init or join made to this machine",
		Long: `Revert the changes that init or join made to this machine: remove its pods, stop
the units, and delete their files. On a control plane this removes the machine's
etcd member and the data of etcd too. Files in /etc/default stay. Delete the Node
object on a control plane: podium delete node NAME.`,
	}, plain(run))
	return cmd
}

func newCerts(streams IO, check machineRun, renew optionsRun[machine.RenewOptions], upload machineRun) *cobra.Command {
	checkCmd, _ := onMachine(streams, &cobra.Command{Use: "check", Short: "Show when each certificate expires; fail if one has expired"}, plain(check))
	uploadCmd, _ := onMachine(streams, &cobra.Command{Use: "upload", Short: "Upload the control-plane keys, encrypted, for two hours, and print the join command"}, plain(upload))
	o := machine.RenewOptions{}
	renewCmd, _ := onMachine(streams, &cobra.Command{Use: "renew", Short: "Renew all certificates except the CAs"}, with(renew, &o))
	renewCmd.Flags().BoolVar(&o.Expiring, "expiring", false, "only renew certificates in the last third of their lifetime, as podium-certs.timer does daily")
	return group("certs", "Check, renew, revoke and upload the certificates of this machine",
		checkCmd, uploadCmd, renewCmd, newRevoke(streams, machine.RevokeCertificates))
}

func newRevoke(streams IO, run optionsRun[machine.RevokeOptions]) *cobra.Command {
	o := machine.RevokeOptions{}
	cmd, _ := onMachine(streams, &cobra.Command{
		Use:   "revoke [FILE...]",
		Short: "Revoke client certificates (on a control plane)",
		Long: `Revoke client certificates: add them to the revocation list of the cluster's CA
(/etc/podium/pki/ca.crl). The API server publishes the list; within seconds all
API servers, kubelets and control-plane daemons refuse the certificates and close
the connections that were opened with them.
FILE is a certificate in PEM form or a kubeconfig that holds one.`,
		Args: cobra.ArbitraryArgs,
	}, func(ctx context.Context, cfg machine.Config, args []string) error {
		o.Files = args
		return run(ctx, cfg, machine.ThisHost{}, o)
	})
	cmd.Flags().StringSliceVar(&o.Serials, "serial", nil, "serial number, in hexadecimal, of a certificate whose file is not available")
	return cmd
}

func newBackup(streams IO, run fileRun) *cobra.Command {
	cmd, _ := onMachine(streams, &cobra.Command{
		Use:   "backup FILE",
		Short: "Back up this control plane's etcd, keys and configuration to one archive",
		Long: `Back up this control plane to one archive: a snapshot of etcd, which the
apiserver streams, and all of /etc/podium. FILE is written completely or not at
all. It gives full access to the cluster: keep it secret.`,
		Args: cobra.ExactArgs(1),
	}, withArg(run))
	return cmd
}

func newRestore(streams IO, run fileRun) *cobra.Command {
	cmd, cfg := onMachine(streams, &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore a control plane from a backup on this machine",
		Long: `Restore a control plane from a backup on this machine: a new one with the same
IP address, or the one that was backed up. The archive is verified before
anything is changed; what was here is moved aside (/etc/podium.before-TIME,
/var/lib/podium/etcd.before-TIME).`,
		Args: cobra.ExactArgs(1),
	}, withArg(run))
	waitFlag(cmd.Flags(), cfg)
	preflightFlag(cmd.Flags(), &cfg.IgnorePreflight)
	return cmd
}

func newEtcd(streams IO, list machineRun, remove fileRun) *cobra.Command {
	listCmd, _ := onMachine(streams, &cobra.Command{Use: "list", Short: "List the etcd members with their roles and health"}, plain(list))
	removeCmd, _ := onMachine(streams, &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove the etcd member of a machine that is lost",
		Long: `Remove the etcd member of a machine that is lost, so that the quorum no longer
counts it: by the name of its node or, if its etcd never started, by its peer
URL. On a machine that still runs, use podium reset.`,
		Args: cobra.ExactArgs(1),
	}, withArg(remove))
	return group("etcd", "List and remove etcd members (on a control plane)", listCmd, removeCmd)
}

func newToken(streams IO) *cobra.Command {
	listCmd, _ := onMachine(streams, &cobra.Command{Use: "list", Short: "List bootstrap tokens, without their secrets"}, plain(machine.ListTokens))
	deleteCmd, _ := onMachine(streams, &cobra.Command{Use: "delete ID", Short: "Delete a bootstrap token", Args: cobra.ExactArgs(1)}, withArg(machine.DeleteToken))
	return group("token", "Manage bootstrap tokens", newTokenCreate(streams, machine.CreateToken), listCmd, deleteCmd)
}

func newTokenCreate(streams IO, run optionsRun[machine.TokenOptions]) *cobra.Command {
	o := machine.TokenOptions{}
	cmd, _ := onMachine(streams, &cobra.Command{
		Use:   "create [-]",
		Short: "Create a bootstrap token (on a control plane)",
		Long: `Create a bootstrap token (on a control plane). With -, a token of your own
(ID.SECRET) is read from standard input: command-line arguments are visible to
other users of this machine.`,
		Args: cobra.MaximumNArgs(1),
	}, func(ctx context.Context, cfg machine.Config, args []string) error {
		if len(args) == 1 && args[0] != "-" {
			return errors.New("a token is not given as a word, which others on this machine can see (ps): podium token create -, and the token on standard input")
		}
		if len(args) == 1 {
			if err := streams.readCredentials(&credential{flag: "the token", value: &o.Token, file: "-"}); err != nil {
				return err
			}
		}
		return run(ctx, cfg, machine.ThisHost{}, o)
	})
	cmd.Flags().DurationVar(&o.TTL, "ttl", 24*time.Hour, "duration before the token expires; 0: it never expires")
	cmd.Flags().StringVar(&o.Description, "description", "", "description of how the token is used")
	cmd.Flags().StringSliceVar(&o.Groups, "groups", nil, "extra groups that the token authenticates as (default: the group of new nodes)")
	cmd.Flags().BoolVar(&o.PrintJoin, "print-join-command", false, "print the full podium join command instead of the token")
	return cmd
}

func newJoin(streams IO, run optionsRun[machine.JoinOptions]) *cobra.Command {
	o, controlPlane := machine.JoinOptions{}, pflag.NewFlagSet("control plane", pflag.ContinueOnError)
	token, key := credential{flag: "--token", value: &o.Token}, credential{flag: "--certificate-key", value: &o.CertificateKey}
	cmd, cfg := onMachine(streams, &cobra.Command{
		Use:   "join HOST:PORT --token-file FILE|- --discovery-token-ca-cert-hash sha256:HASH",
		Short: "Join this machine to a cluster as a node or a control plane",
		Long: `Join this machine, which runs systemd, to the cluster whose apiserver is at
HOST:PORT. The token and the hash of the cluster's CA identify the cluster; podium
token create --print-join-command prints both on a control plane. Run a failed
join again.

The token and the certificate key are read from files or, with -, from standard
input: first the token, then the key; a terminal does not echo them. The values of
--token and --certificate-key are visible to other users of this machine while
the command runs.

With --control-plane and the key that podium certs upload prints, the machine
becomes a control plane too, with an apiserver, controllers and an etcd member of
its own. Join control planes one after the other; have one or three of them.`,
		Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, cfg machine.Config, args []string) error {
		cfg.Endpoint = args[0]
		var wrong []string
		controlPlane.VisitAll(func(f *pflag.Flag) {
			if f.Changed && !o.ControlPlane {
				wrong = append(wrong, "--"+f.Name)
			}
		})
		if len(wrong) > 0 {
			return fmt.Errorf("%s: only with --control-plane", strings.Join(wrong, ", "))
		}
		if err := streams.readCredentials(&token, &key); err != nil {
			return err
		}
		return run(ctx, cfg, machine.ThisHost{}, o)
	})
	fs := cmd.Flags()
	nodeFlags(fs, cfg)
	controlPlaneFlags(controlPlane, cfg)
	fs.AddFlagSet(controlPlane)
	fs.BoolVar(&o.ControlPlane, "control-plane", false, "join as a control plane")
	fs.StringVar(&key.file, "certificate-key-file", "", "file with the key that decrypts the control-plane keys, as podium certs upload prints it; -: standard input")
	fs.StringVar(&o.CertificateKey, "certificate-key", "", "the key itself; other users of this machine can see it (ps)")
	fs.StringVar(&token.file, "token-file", "", "file with the token, ID.SECRET; -: standard input")
	fs.StringVar(&o.Token, "token", "", "the token itself; other users of this machine can see it (ps)")
	fs.StringSliceVar(&o.Hashes, "discovery-token-ca-cert-hash", nil, "hash of the public key of the cluster's CA, sha256:...; may be repeated, one must match")
	fs.BoolVar(&o.Unsafe, "discovery-token-unsafe-skip-ca-verification", false, "skip CA verification: anyone with the token can impersonate the cluster")
	return cmd
}
