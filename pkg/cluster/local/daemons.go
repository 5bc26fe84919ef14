package local

import (
	"os"
	"path/filepath"
	"strconv"

	"podium/pkg/cluster/admissionconfig"
	"podium/pkg/daemon/memory"
)

// daemons lists the cluster's processes beside containerd, in the order in
// which they are started. Those that need the apiserver wait for it themselves.
func (c *Config) daemons() []process {
	all := c.flags()
	for i := range all {
		all[i].env = softLimit(all[i].name)
	}
	return all
}

// shares are parts of the machine's memory, in percent, that daemons keep their
// heaps below. They are small: a person's machine does other things, too.
func shares() map[string]uint64 {
	return map[string]uint64{"kube-apiserver": 25, "kube-controller-manager": 10, "kube-scheduler": 10, "kubelet": 10, "kube-proxy": 5}
}

// softLimit is a daemon's environment with its soft memory limit, unless the
// caller's has one.
func softLimit(daemon string) []string {
	machine, err := memory.Machine()
	if err != nil || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	return []string{"GOMEMLIMIT=" + strconv.FormatUint(machine/100*shares()[daemon], 10)}
}

// flags are the daemons with their command lines.
func (c *Config) flags() []process {
	pki := func(file string) string { return c.path("pki", file) }
	conf := func(name string) string { return c.path("kubeconfigs", name+".conf") }
	daemon := func(name string, flags ...string) process {
		return process{name: name, args: append([]string{filepath.Join(c.Bin, name)}, flags...)}
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
			"--leader-elect=false", // one machine, one of each
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

// networkFlags say which network is ours, for running and for cleaning up.
func (c *Config) networkFlags() []string {
	return []string{"--cni-conf-dir=" + c.cniConf(), "--cni-data-dir=" + c.path("cni-addresses"), "--bridge-name=" + bridge}
}
