package local

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"podium/pkg/cluster/admissionconfig"
	"podium/pkg/daemon/memory"
)

// daemons returns the cluster's processes except containerd, in start order.
// They wait for the apiserver themselves.
func (c *Config) daemons() []process {
	all := c.flags()
	for i := range all {
		all[i].env = softLimit(all[i].name)
		for _, extra := range c.Extra {
			if flag, ok := strings.CutPrefix(extra, all[i].name+"."); ok {
				all[i].args = append(all[i].args, "--"+flag)
			}
		}
	}
	return all
}

// checkExtra returns an error for each further flag that names no daemon or has no value.
func (c *Config) checkExtra() (errs []error) {
	for _, extra := range c.Extra {
		daemon, flag, _ := strings.Cut(extra, ".")
		known := slices.ContainsFunc(c.flags(), func(p process) bool { return p.name == daemon })
		if name, _, ok := strings.Cut(flag, "="); !known || !ok || name == "" {
			errs = append(errs, fmt.Errorf("--extra-config %q: want DAEMON.FLAG=VALUE, as in kube-apiserver.v=4", extra))
		}
	}
	return errs
}

// shares returns the soft memory limits of daemons, in percent of the machine's
// memory. They are small because the machine is also used for other things.
func shares() map[string]uint64 {
	return map[string]uint64{"kube-apiserver": 25, "kube-controller-manager": 10, "kube-scheduler": 10, "kubelet": 10, "kube-proxy": 5}
}

// softLimit returns the environment variable with a daemon's soft memory limit;
// nil if the caller's environment has one.
func softLimit(daemon string) []string {
	machine, err := memory.Machine()
	if err != nil || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	return []string{"GOMEMLIMIT=" + strconv.FormatUint(machine/100*shares()[daemon], 10)}
}

// flags returns the daemons with their command lines.
func (c *Config) flags() []process {
	pki := func(file string) string { return c.path("pki", file) }
	conf := func(name string) string { return c.path("kubeconfigs", name+".conf") }
	daemon := func(name string, flags ...string) process {
		return process{name: name, args: append([]string{filepath.Join(c.Bin, name)}, flags...), priority: true}
	}
	own := c.ranges()
	var admission []string
	if admissionconfig.Restricts(c.PodSecurity) {
		admission = []string{"--admission-control-config-file=" + c.admissionConfig()}
	}
	return []process{
		daemon("kube-apiserver", append(admission,
			"--data-dir="+c.path("etcd"),
			"--encryption-provider-config="+c.encryptionConfig(),
			"--encryption-provider-config-automatic-reload",
			"--audit-policy-file="+c.auditPolicy(),
			"--audit-log-path="+c.path("logs", "audit.log"),
			"--audit-log-maxage=30",
			"--audit-log-maxbackup=10",
			"--secure-port="+strconv.Itoa(c.Port),
			"--advertise-address="+c.NodeIP,
			"--client-ca-file="+pki("ca.crt"),
			"--client-crl-file="+pki("ca.crl"),
			"--requestheader-client-ca-file="+pki("front-proxy-ca.crt"),
			"--requestheader-allowed-names=front-proxy-client",
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-uid-headers=X-Remote-Uid",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--proxy-client-cert-file="+pki("front-proxy-client.crt"),
			"--proxy-client-key-file="+pki("front-proxy-client.key"),
			"--enable-bootstrap-token-auth",
			"--tls-cert-file="+pki("apiserver.crt"),
			"--tls-private-key-file="+pki("apiserver.key"),
			"--kubelet-certificate-authority="+pki("kubelet-ca.crt"),
			"--kubelet-client-certificate="+pki("apiserver-kubelet-client.crt"),
			"--kubelet-client-key="+pki("apiserver-kubelet-client.key"),
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-signing-key-file="+pki("sa.key"),
			"--service-account-key-file="+pki("sa.pub"),
			"--service-cluster-ip-range="+own.services,
			"--profiling=false",
		)...),
		daemon("kube-controller-manager",
			"--client-ca-file="+pki("ca.crt"),
			"--kubeconfig="+conf("kube-controller-manager"),
			"--cluster-cidr="+own.pods,
			"--root-ca-file="+pki("ca.crt"),
			"--service-account-private-key-file="+pki("sa.key"),
			"--cluster-signing-kubelet-serving-cert-file="+pki("kubelet-ca.crt"),
			"--cluster-signing-kubelet-serving-key-file="+pki("kubelet-ca.key"),
			"--cluster-signing-kubelet-client-cert-file="+pki("ca.crt"),
			"--cluster-signing-kubelet-client-key-file="+pki("ca.key"),
			"--cluster-signing-kube-apiserver-client-cert-file="+pki("ca.crt"),
			"--cluster-signing-kube-apiserver-client-key-file="+pki("ca.key"),
			"--bind-address=127.0.0.1",
			"--profiling=false",
			"--leader-elect=false", // there is only one instance
		),
		daemon("kube-scheduler",
			"--client-ca-file="+pki("ca.crt"),
			"--kubeconfig="+conf("kube-scheduler"),
			"--bind-address=127.0.0.1",
			"--profiling=false",
			"--leader-elect=false",
		),
		daemon("kubelet",
			"--kubeconfig="+conf("kubelet"),
			"--hostname-override="+c.Node,
			"--node-ip="+c.NodeIP,
			"--root-dir="+c.path("kubelet"),
			"--container-runtime-endpoint=unix://"+c.containerdSocket(),
			"--cgroup-driver=cgroupfs",
			"--cgroup-root=/"+c.id(),
			"--cluster-dns="+own.dns,
			"--cluster-domain=cluster.local",
			"--pod-logs-dir="+c.path("pods"),
			"--container-logs-dir="+c.path("containers"),
			"--client-ca-file="+pki("ca.crt"),
			"--cert-dir="+c.path(kubeletPKI),
			"--rotate-certificates",
			"--rotate-server-certificates",
		),
		daemon("kube-proxy", append([]string{
			"--kubeconfig=" + conf("kube-proxy"),
			"--hostname-override=" + c.Node,
			"--cluster-cidr=" + own.pods,
		}, c.networkFlags()...)...),
	}
}

// networkFlags returns kube-proxy's flags that identify the network, for
// running and for cleaning up.
func (c *Config) networkFlags() []string {
	return []string{"--cni-conf-dir=" + c.cniConf(), "--cni-data-dir=" + c.path("cni-addresses"), "--bridge-name=" + bridge}
}
