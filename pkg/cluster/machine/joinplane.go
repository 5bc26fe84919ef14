package machine

import (
	"context"
	"errors"
)

// asControlPlane makes this machine one of the control plane. It gets the
// authorities' keys and makes its own certificates by them, so that nothing
// but the first answer depends on another machine.
func (j *joining) asControlPlane(ctx context.Context) (err error) {
	if j.key, err = parseCertificateKey(j.options.CertificateKey); err != nil {
		return err
	}
	return j.do(ctx, "this machine is one of the control plane",
		step{"preflight checks", plain(func(ctx context.Context) error { return j.preflight(ctx, controlPlaneChecks(j.Port)) })},
		step{"cluster found and trusted", j.discover},
		step{"settings of the cluster read", j.read},
		step{"keys of the control plane read", plain(j.fetchShared)},
		step{"certificates and kubeconfigs", plain(func(context.Context) error { return errors.Join(j.writeShared(), j.rememberOnce(), j.identities()) })},
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

// rememberOnce keeps what a run before has noted about etcd's members.
func (j *joining) rememberOnce() error {
	if before, err := recall(j.Config, j.host); err == nil {
		j.EtcdMembers = before.EtcdMembers
	}
	return j.remember()
}
