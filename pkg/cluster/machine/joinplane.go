package machine

import (
	"context"
	"errors"

	"podium/pkg/cluster/machine/join"
)

// asControlPlane makes this machine a control plane. It gets the CAs' keys and
// signs its own certificates, so that it depends on other machines only until
// it has read the shared files.
func (j *joining) asControlPlane(ctx context.Context) (err error) {
	if j.key, err = join.ParseKey(j.options.CertificateKey); err != nil {
		return err
	}
	return j.do(ctx, "this machine is one of the control plane",
		step{"preflight checks", plain(func(ctx context.Context) error { return j.preflight(ctx, controlPlaneChecks(j.Port)) })},
		step{"cluster found and trusted", j.discover},
		step{"settings of the cluster read", j.read},
		step{"keys of the control plane read", plain(j.fetchShared)},
		step{"certificates and kubeconfigs", plain(func(context.Context) error { return errors.Join(j.writeShared(), j.saveConfigOnce(), j.identities()) })},
		step{"containerd set up", plain(j.runtime)},
		step{"images loaded", j.images},
		step{"member of etcd", j.joinEtcd},
		step{"units started", plain(func(ctx context.Context) error { return j.start(ctx, append(j.controlPlane(), j.node()...)) })},
		step{"kube-apiserver ready", j.apiserverReady},
		step{"marked as control plane", j.markControlPlane},
		step{"node " + j.Node + " Ready", j.nodeReady},
		step{"name servers on several nodes", plain(j.spreadNames)},
	)
}

// saveConfigOnce is remember, but keeps the etcd members that an earlier run has
// recorded.
func (j *joining) saveConfigOnce() error {
	if before, err := loadMachine(j.Config, j.host); err == nil {
		j.EtcdMembers = before.EtcdMembers
	}
	return j.saveConfig()
}
