package machine

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiversion "k8s.io/apimachinery/pkg/version"

	"podium/pkg/client"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/client/leaderelection"
	"podium/pkg/client/upgradelock"
	"podium/pkg/cluster/drain"
	"podium/pkg/cluster/machine/etcd"
	"podium/pkg/cluster/machine/upgrade"
	"podium/pkg/cluster/poll"
	"podium/pkg/scheme"
)

// fleet is what an upgrade reads and changes in the cluster.
type fleet interface {
	nodes(ctx context.Context) ([]*corev1.Node, error)
	pods(ctx context.Context) ([]*corev1.Pod, error) // of this node
	servers(ctx context.Context) ([]upgrade.Server, error)
	members(ctx context.Context) ([]etcd.Member, error) // of etcd; control planes only

	free(ctx context.Context, waiting func(string)) error // waits until no other machine is being upgraded
	turn(ctx context.Context, do func(context.Context) error) error

	cordon(ctx context.Context, cordoned bool, note string) error // note "" removes the annotation
	drain(ctx context.Context, waiting func(string)) error
	moveLeader(ctx context.Context) error                      // moves etcd's leadership to another member
	settings(ctx context.Context, waiting func(string)) error  // updates what other machines and add-ons need of the new version
	backup(ctx context.Context, file string) error             // of the control plane
	apiserver(ctx context.Context, waiting func(string)) error // waits until this machine's is ready

	// unmoved describes the first kubelet that does not serve a certificate of
	// this CA; "" if there is none.
	unmoved(ctx context.Context, nodes []*corev1.Node, ca *x509.Certificate) string
}

// live implements fleet for the cluster of this machine. A control plane uses
// the administrator's credentials, a worker those of its daemons.
type live struct {
	*machine
	api drain.API
}

func connect(m *machine, plane bool) (fleet, error) {
	l := &live{machine: m}
	if plane {
		cl, err := m.admin()
		l.api = drain.API{Cluster: cl, Own: cl}
		return l, err
	}
	var err error
	if l.api.Cluster, err = m.as(kubeconfigFile("kube-proxy")); err != nil {
		return nil, err
	}
	l.api.Own, err = m.as(kubeletConf)
	return l, err
}

// as returns a client with the kubeconfig of one of the machine's daemons.
func (m *machine) as(file string) (*client.Client, error) {
	config, err := kubeconfig.Load(m.at(file))
	if err != nil {
		return nil, err
	}
	cfg, _, err := config.Client("")
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = "podium"
	return client.New(scheme.New(), cfg)
}

func (l *live) nodes(ctx context.Context) ([]*corev1.Node, error) { return l.api.Nodes(ctx) }
func (l *live) pods(ctx context.Context) ([]*corev1.Pod, error)   { return l.api.Pods(ctx, l.Node) }

// serverTimeout is the timeout of the version request to one apiserver.
const serverTimeout = 5 * time.Second

// servers asks every apiserver for its version. One that does not answer is in
// the list with its problem.
func (l *live) servers(ctx context.Context) (out []upgrade.Server, err error) {
	addresses, err := l.api.Own.DiscoverServers(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the apiservers: %w", err)
	}
	for _, address := range addresses {
		s := upgrade.Server{Address: address}
		if s.Version, err = l.versionOf(ctx, address); err != nil {
			s.Problem = err.Error()
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b upgrade.Server) int { return cmp.Compare(a.Address, b.Address) })
	return out, nil
}

// versionOf asks one apiserver for its version.
func (l *live) versionOf(ctx context.Context, address string) (string, error) {
	file := kubeletConf // a control plane's, too
	cl, err := l.as(file)
	if err == nil {
		err = cl.SetServers([]string{address})
	}
	if err != nil {
		return "", err
	}
	defer cl.CloseIdle()
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	body, _, err := cl.Do(ctx, client.Request{Path: "/version"})
	if err != nil {
		return "", err
	}
	var info apiversion.Info
	return info.GitVersion, json.Unmarshal(body, &info)
}

func (l *live) members(ctx context.Context) ([]etcd.Member, error) { return l.etcdMembers(ctx) }

// moveLeader avoids a leader election of etcd while this machine's member
// restarts.
func (l *live) moveLeader(ctx context.Context) error { return l.etcdAccess().MoveLeader(ctx) }

// Timing of the Lease that one machine at a time holds during its upgrade. The
// durations are long because the machine's apiserver may be the only one, and
// restarts meanwhile.
const (
	turnDuration = time.Minute
	turnDeadline = 50 * time.Second
	turnPeriod   = 2 * time.Second
)

func (l *live) free(ctx context.Context, waiting func(string)) error {
	var last error
	waited := poll.Until(ctx, turnPeriod, func(ctx context.Context) error {
		if last = l.checkUpgradeLock(ctx); last == nil || apierrors.IsForbidden(last) {
			return nil
		}
		waiting(last.Error())
		return last
	})
	if apierrors.IsForbidden(last) {
		return fmt.Errorf("%w\n    → upgrade control planes first: podium upgrade apply there", last)
	}
	return waited
}

// checkUpgradeLock returns an error that names another machine that is being
// upgraded.
func (l *live) checkUpgradeLock(ctx context.Context) error {
	lease, err := client.For[*coordinationv1.Lease](l.api.Own).In(upgradelock.Namespace).Get(ctx, upgradelock.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if holder := upgradelock.Holder(lease, time.Now()); holder != "" && holder != l.Node {
		return fmt.Errorf("%s is being upgraded", holder)
	}
	return nil
}

// turn acquires the upgrade Lease and calls do once while it holds it. It
// cancels do's context if the Lease is lost because the cluster was unreachable
// for too long.
func (l *live) turn(ctx context.Context, do func(context.Context) error) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	result := errors.New("the upgrade lock was not acquired: podium upgrade plan shows its holder")
	err := leaderelection.Run(ctx, leaderelection.Config{
		Client: l.api.Own, Namespace: upgradelock.Namespace, Name: upgradelock.Name, Identity: l.Node,
		LeaseDuration: turnDuration, RenewDeadline: turnDeadline, RetryPeriod: turnPeriod,
	}, func(ctx context.Context) error {
		result = do(ctx)
		end() // once
		return nil
	})
	return errors.Join(result, err)
}

func (l *live) cordon(ctx context.Context, cordoned bool, note string) error {
	return l.api.Cordon(ctx, l.Node, cordoned, upgrade.Note, note)
}

func (l *live) drain(ctx context.Context, waiting func(string)) error {
	return l.api.Drain(ctx, l.Node, waiting)
}

func (l *live) settings(ctx context.Context, _ func(string)) error {
	return errors.Join(l.upload(ctx), l.applyDNS(ctx), l.applyMetrics(ctx), l.createStorageClass(ctx, false))
}

// backup is one step of an upgrade, and prints no steps of its own.
func (l *live) backup(ctx context.Context, file string) error {
	quiet := *l.machine
	quiet.Out = io.Discard
	return quiet.backup(ctx, file)
}

func (l *live) apiserver(ctx context.Context, waiting func(string)) error {
	return l.apiserverReady(ctx, waiting)
}
