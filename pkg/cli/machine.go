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

// machineRun is what a command does with this machine.
type machineRun func(context.Context, machine.Config, machine.Host) error

func newInit(streams IO, run func(context.Context, machine.Config, machine.Host, machine.InitOptions) error) *cobra.Command {
	cfg, o := machine.Default(), machine.InitOptions{}
	cfg.Out = streams.Out
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make this machine the first of a cluster",
		Long: `Make this machine, which runs systemd, the first of a cluster: check it, make
certificates and configuration below /etc/podium, start the units of the
control plane and of a node, and wait until all is ready. What is done already
is left alone, so that a run that failed is simply run again.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), cfg, machine.ThisHost{}, o) },
	}
	fs := cmd.Flags()
	nodeFlags(fs, &cfg)
	controlPlaneFlags(fs, &cfg)
	fs.StringVar(&cfg.Cluster, "cluster-name", cfg.Cluster, "name of the cluster in kubeconfigs")
	fs.StringVar(&cfg.Endpoint, "control-plane-endpoint", "", "HOST:PORT at which all machines find an apiserver (default: this machine's)")
	fs.StringVar(&cfg.PodCIDR, "pod-network-cidr", cfg.PodCIDR, "range of the pods' addresses (default 10.244.0.0/16, or fd00:10:244::/56 where --node-ip is of IPv6)")
	fs.StringVar(&cfg.PodNetwork, "pod-network", cfg.PodNetwork, "how pods reach those of other machines: routes, where machines share a link; vxlan, across routers; cloud leaves the way to --cloud-provider; none leaves it to an add-on")
	fs.StringVar(&cfg.ServiceCIDR, "service-cidr", cfg.ServiceCIDR, "range of the Services' addresses (default 10.96.0.0/16, or fd00:10:96::/112)")
	fs.StringVar(&cfg.Cloud, "cloud-provider", "", "who provides the machines: docker (they are containers), baremetal, or none; cloud-controller-manager then runs on control planes")
	fs.StringVar(&cfg.CloudConfig, "cloud-config", "", "file that the provider reads; kept as /etc/podium/pki/cloud.yaml, for further control planes too")
	fs.StringVar(&cfg.PodSecurity, "pod-security", "", podSecurityUsage)
	fs.StringVar(&cfg.DNSDomain, "service-dns-domain", cfg.DNSDomain, "DNS domain of the Services")
	fs.BoolVar(&o.UploadCerts, "upload-certs", false, "share the keys, encrypted, for two hours, and print the command by which further control planes join")
	return cmd
}

const podSecurityUsage = "Pod Security level of namespaces whose labels name none, kube-system exempt: privileged (default, as upstream: nothing is restricted), baseline or restricted"

// nodeFlags say what this machine is as a node.
func nodeFlags(fs *pflag.FlagSet, cfg *machine.Config) {
	fs.StringVar(&cfg.Node, "node-name", "", "name of the node (default: the host's name)")
	fs.StringVar(&cfg.NodeIP, "node-ip", "", "address of the node (default: that of the default route)")
	fs.StringToStringVar(&cfg.NodeLabels, "node-labels", nil, "labels of the node, as key=value,...")
	fs.StringSliceVar(&cfg.NodeTaints, "node-taints", nil, "taints of the node, as key=value:effect")
	fs.StringToStringVar(&cfg.KubeReserved, "kube-reserved", nil, "what the daemons need of the node, as cpu=200m,memory=300Mi")
	fs.StringToStringVar(&cfg.SystemReserved, "system-reserved", nil, "what the rest of the system needs")
	fs.StringVar(&cfg.CgroupDriver, "cgroup-driver", cfg.CgroupDriver, "who owns the cgroup tree: systemd or cgroupfs (default: systemd where cgroups have version 2)")
	fs.StringVar(&cfg.Runtime, "cri-socket", "", "socket of a container runtime that is set up already (default: Debian's containerd, set up by this command)")
	fs.StringSliceVar(&cfg.IgnorePreflight, "ignore-preflight-errors", nil, "preflight checks that shall only warn; all: each of them")
	fs.DurationVar(&cfg.Wait, "wait", cfg.Wait, "how long to wait for each of: the apiserver, the node")
}

// controlPlaneFlags say what it is as part of the control plane.
func controlPlaneFlags(fs *pflag.FlagSet, cfg *machine.Config) {
	fs.IntVar(&cfg.Port, "apiserver-bind-port", cfg.Port, "port of this machine's apiserver")
	fs.StringSliceVar(&cfg.CertSANs, "apiserver-cert-extra-sans", nil, "more names and addresses under which clients reach the apiserver")
	fs.StringVar((*string)(&cfg.ControlPlane), "control-plane-placement", string(cfg.ControlPlane), "dedicated: only pods that tolerate it run here; shared: all may")
}

func newReset(streams IO, run machineRun) *cobra.Command {
	cfg := machine.Default()
	cfg.Out = streams.Out
	return &cobra.Command{
		Use:   "reset",
		Short: "Take this machine out of its cluster",
		Long: `Take this machine out of its cluster: end its pods and the units, and remove
what they have written, the store's data on a control plane included; its member
of etcd is removed from the others' first. What an
operator wrote in /etc/default stays. The node object is deleted on a control
plane's machine: podium delete node NAME.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), cfg, machine.ThisHost{}) },
	}
}

// renewRun is what podium certs renew does.
type renewRun func(context.Context, machine.Config, machine.Host, machine.RenewOptions) error

func newCerts(streams IO, check machineRun, renew renewRun, upload machineRun) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "certs",
		Short: "Check, renew and share this machine's certificates",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, sub := range []struct {
		use, short string
		run        machineRun
	}{
		{"check", "Say until when each certificate is good; fail when one has ended", check},
		{"upload", "Share a control plane's keys, encrypted, for two hours, and print the command by which another joins", upload},
	} {
		cfg := machine.Default()
		cfg.Out = streams.Out
		cmd.AddCommand(&cobra.Command{
			Use: sub.use, Short: sub.short, Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return sub.run(cmd.Context(), cfg, machine.ThisHost{}) },
		})
	}
	cmd.AddCommand(newRenew(streams, renew), newRevoke(streams, machine.RevokeCertificates))
	return cmd
}

func newRenew(streams IO, run renewRun) *cobra.Command {
	cfg, o := machine.Default(), machine.RenewOptions{}
	cfg.Out = streams.Out
	cmd := &cobra.Command{
		Use:   "renew",
		Short: "Make all certificates anew but the authorities'; the daemons turn to them by themselves",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), cfg, machine.ThisHost{}, o)
		},
	}
	cmd.Flags().BoolVar(&o.Expiring, "expiring", false, "only those in the last third of their life, as podium-certs.timer has it done each day")
	return cmd
}

func newRevoke(streams IO, run func(context.Context, machine.Config, machine.Host, machine.RevokeOptions) error) *cobra.Command {
	cfg, o := machine.Default(), machine.RevokeOptions{}
	cfg.Out = streams.Out
	cmd := &cobra.Command{
		Use:   "revoke [FILE...]",
		Short: "Cut off leaked client certificates, on a control plane's machine",
		Long: `Cut off leaked client certificates: put them on the revocation list of the
cluster's CA (/etc/podium/pki/ca.crl). The API server publishes the list, and
within seconds all API servers, kubelets and control-plane daemons refuse the
certificates and end the connections that were made with them.
FILE is a certificate in PEM form or a kubeconfig that holds one.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Files = args
			return run(cmd.Context(), cfg, machine.ThisHost{}, o)
		},
	}
	cmd.Flags().StringSliceVar(&o.Serials, "serial", nil, "serial number of a certificate that is not at hand, in hexadecimal")
	return cmd
}

// fileRun is what a command does with this machine and a file.
type fileRun func(context.Context, machine.Config, machine.Host, string) error

func newBackup(streams IO, run fileRun) *cobra.Command {
	cfg := machine.Default()
	cfg.Out = streams.Out
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Write this control plane's store, keys and configuration into one archive",
		Long: `Write this control plane's store, keys and configuration into one archive: a
snapshot of etcd, which the apiserver streams, and all of /etc/podium. FILE is
there whole or not at all. Whoever can read it owns the cluster.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return run(cmd.Context(), cfg, machine.ThisHost{}, args[0])
		},
	}
}

func newRestore(streams IO, run fileRun) *cobra.Command {
	cfg := machine.Default()
	cfg.Out = streams.Out
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make this machine the control plane that a backup was made of",
		Long: `Make this machine the control plane that a backup was made of: a blank one
with the same address, or the same one with its present state. The archive is
checked before anything is touched; what was here is put aside beside it
(/etc/podium.before-TIME, /var/lib/podium/etcd.before-TIME).`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return run(cmd.Context(), cfg, machine.ThisHost{}, args[0])
		},
	}
	cmd.Flags().DurationVar(&cfg.Wait, "wait", cfg.Wait, "how long to wait for each of: the apiserver, the node")
	cmd.Flags().StringSliceVar(&cfg.IgnorePreflight, "ignore-preflight-errors", nil, "preflight checks that shall only warn; all: each of them")
	return cmd
}

func newEtcd(streams IO, list machineRun, remove fileRun) *cobra.Command {
	cfg := machine.Default()
	cfg.Out = streams.Out
	cmd := &cobra.Command{
		Use:   "etcd",
		Short: "List and remove etcd's members, on a control plane's machine",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use: "list", Short: "List etcd's members and how they are", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return list(cmd.Context(), cfg, machine.ThisHost{}) },
	}, &cobra.Command{
		Use:   "remove NAME",
		Short: "Take a machine that is gone for good out of etcd's members",
		Long: `Take a machine that is gone for good out of etcd's members, so that the others
need not count with it: by the name of its node, or, if its etcd never ran, by
its peer URL. A machine that is there leaves by podium reset.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return remove(cmd.Context(), cfg, machine.ThisHost{}, args[0])
		},
	})
	return cmd
}

func newToken(streams IO) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make, list and delete the tokens by which new machines join",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTokenCreate(streams, machine.CreateToken), newTokenList(streams, machine.ListTokens), newTokenDelete(streams, machine.DeleteToken))
	return cmd
}

func newTokenCreate(streams IO, run func(context.Context, machine.Config, machine.Host, machine.TokenOptions) error) *cobra.Command {
	cfg, o := machine.Default(), machine.TokenOptions{}
	cfg.Out = streams.Out
	cmd := &cobra.Command{
		Use:   "create [-]",
		Short: "Make a token, on a control plane's machine",
		Long: `Make a token, on a control plane's machine. One that is chosen elsewhere
(ID.SECRET) is read from standard input, with - in its place: others on this
machine see the words of every command.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] != "-" {
				return errors.New("a token is not given as a word, which others on this machine can see (ps): podium token create -, and the token on standard input")
			}
			if len(args) == 1 {
				if err := streams.readCredentials(&credential{flag: "the token", value: &o.Token, file: "-"}); err != nil {
					return err
				}
			}
			return run(cmd.Context(), cfg, machine.ThisHost{}, o)
		},
	}
	cmd.Flags().DurationVar(&o.TTL, "ttl", 24*time.Hour, "how long the token is good; 0: for ever")
	cmd.Flags().StringVar(&o.Description, "description", "", "what it is for")
	cmd.Flags().StringSliceVar(&o.Groups, "groups", nil, "groups of who shows it (default: that of new nodes)")
	cmd.Flags().BoolVar(&o.PrintJoin, "print-join-command", false, "print the whole command to be typed on the new machine")
	return cmd
}

func newTokenList(streams IO, run machineRun) *cobra.Command {
	cfg := machine.Default()
	cfg.Out = streams.Out
	return &cobra.Command{
		Use:   "list",
		Short: "List the tokens, without their secrets",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), cfg, machine.ThisHost{}) },
	}
}

func newTokenDelete(streams IO, run fileRun) *cobra.Command {
	cfg := machine.Default()
	cfg.Out = streams.Out
	return &cobra.Command{
		Use:   "delete ID",
		Short: "Delete a token",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return run(cmd.Context(), cfg, machine.ThisHost{}, args[0])
		},
	}
}

func newJoin(streams IO, run func(context.Context, machine.Config, machine.Host, machine.JoinOptions) error) *cobra.Command {
	cfg, o, controlPlane := machine.Default(), machine.JoinOptions{}, pflag.NewFlagSet("control plane", pflag.ContinueOnError)
	cfg.Out = streams.Out
	token, key := credential{flag: "--token", value: &o.Token}, credential{flag: "--certificate-key", value: &o.CertificateKey}
	cmd := &cobra.Command{
		Use:   "join HOST:PORT --token-file FILE|- --discovery-token-ca-cert-hash sha256:HASH",
		Short: "Make this machine a node of a cluster",
		Long: `Make this machine, which runs systemd, a node of the cluster whose apiserver is
at HOST:PORT. The token and the hash of the cluster's authority, both printed on
a control plane's machine by podium token create --print-join-command, make sure
that it is the right one. A run that failed is simply run again.

The token, and a control plane's key, come from files or, for -, from standard
input: first the token, then the key; typed unseen at a terminal. Others on this
machine see the words of every command, and so what is given to --token and
--certificate-key, as long as this one runs.

With --control-plane and the key that podium certs upload prints there, it is
one of the control plane, too: with an apiserver, controllers and a member of
etcd of its own. Control planes join one after the other; make it one or three.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
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
			return run(cmd.Context(), cfg, machine.ThisHost{}, o)
		},
	}
	fs := cmd.Flags()
	nodeFlags(fs, &cfg)
	controlPlaneFlags(controlPlane, &cfg)
	fs.AddFlagSet(controlPlane)
	fs.BoolVar(&o.ControlPlane, "control-plane", false, "be one of the control plane, too")
	fs.StringVar(&key.file, "certificate-key-file", "", "file with what opens the keys of the control plane, as podium certs upload prints it; -: standard input")
	fs.StringVar(&o.CertificateKey, "certificate-key", "", "the same as a word, which others on this machine can see (ps)")
	fs.StringVar(&token.file, "token-file", "", "file with the token, ID.SECRET; -: standard input")
	fs.StringVar(&o.Token, "token", "", "the token as a word, which others on this machine can see (ps)")
	fs.StringSliceVar(&o.Hashes, "discovery-token-ca-cert-hash", nil, "hash of the cluster's authority, sha256:...; several are alternatives")
	fs.BoolVar(&o.Unsafe, "discovery-token-unsafe-skip-ca-verification", false, "trust whoever knows the token to be the cluster")
	return cmd
}
