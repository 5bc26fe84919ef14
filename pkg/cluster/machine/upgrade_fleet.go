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

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiversion "k8s.io/apimachinery/pkg/version"

	"podium/pkg/client"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/client/leaderelection"
	"podium/pkg/client/upgradelock"
	"podium/pkg/cluster/drain"
	"podium/pkg/cluster/poll"
	"podium/pkg/scheme"
)

// upgradeNote is on a node while it is being upgraded: to which version.
const upgradeNote = "podium.dev/upgrading-to"

// fleet is the cluster, as far as an upgrade asks and changes it.
type fleet interface {
	nodes(ctx context.Context) ([]*corev1.Node, error)
	pods(ctx context.Context) ([]*corev1.Pod, error) // this node's
	servers(ctx context.Context) ([]server, error)
	members(ctx context.Context) ([]member, error) // of etcd; asked on control planes only

	free(ctx context.Context, waiting func(string)) error // until no other machine has its turn
	turn(ctx context.Context, do func(context.Context) error) error

	cordon(ctx context.Context, cordoned bool, note string) error // "": no note
	drain(ctx context.Context, waiting func(string)) error
	handLead(ctx context.Context) error                        // etcd's, to another member
	settings(ctx context.Context, waiting func(string)) error  // what other machines and addons need of the new version
	backup(ctx context.Context, file string) error             // of the control plane
	apiserver(ctx context.Context, waiting func(string)) error // until this machine's is ready

	// unmoved says which of the nodes' kubelets shows no certificate of this CA.
	unmoved(ctx context.Context, nodes []*corev1.Node, ca *x509.Certificate) string
}

// server is an apiserver, and which version it says it is.
type server struct{ address, version, problem string }

// member is one of etcd's.
type member struct{ name, role, state string }

// live is the cluster that this machine is in. A control plane acts as the
// administrator; a worker with what its daemons may.
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

// as speaks to the cluster as one of the machine's daemons.
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

// serverPatience is how long one apiserver may take to say its version.
const serverPatience = 5 * time.Second

func (l *live) servers(ctx context.Context) (out []server, err error) {
	addresses, err := l.api.Own.AskServers(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask which apiservers there are: %w", err)
	}
	for _, address := range addresses {
		s := server{address: address}
		if s.version, err = l.versionOf(ctx, address); err != nil {
			s.problem = err.Error()
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b server) int { return cmp.Compare(a.address, b.address) })
	return out, nil
}

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
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	body, _, err := cl.Do(ctx, client.Request{Path: "/version"})
	if err != nil {
		return "", err
	}
	var info apiversion.Info
	return info.GitVersion, json.Unmarshal(body, &info)
}

func (l *live) members(ctx context.Context) ([]member, error) {
	cl, err := l.anyEtcd(ctx)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	list, err := cl.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list.Members, func(a, b *etcdserverpb.Member) int { return cmp.Compare(a.Name, b.Name) })
	var out []member
	for _, e := range list.Members {
		role, state := l.examine(ctx, e)
		out = append(out, member{cmp.Or(e.Name, "<not started>"), role, state})
	}
	return out, nil
}

// handLead gives etcd's leadership away before this member is started anew, so
// that nobody has to notice its absence first. Without it the others elect one.
func (l *live) handLead(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*etcdPatience)
	defer cancel()
	cl, err := l.dialEtcd(ctx, "127.0.0.1")
	if err != nil {
		return err
	}
	defer cl.Close()
	list, err := cl.MemberList(ctx)
	if err != nil {
		return err
	}
	status, err := cl.Status(ctx, clientURL("127.0.0.1"))
	if err != nil || status.Leader != status.Header.MemberId {
		return err
	}
	for _, e := range list.Members {
		if e.ID != status.Header.MemberId && !e.IsLearner {
			_, err := cl.MoveLeader(ctx, e.ID)
			return err
		}
	}
	return nil // it is alone
}

// How long a machine's turn lasts when nobody hears of it: its apiserver may be
// the only one, and is started anew meanwhile.
const (
	turnDuration = time.Minute
	turnDeadline = 50 * time.Second
	turnPeriod   = 2 * time.Second
)

func (l *live) free(ctx context.Context, waiting func(string)) error {
	var last error
	waited := poll.Until(ctx, turnPeriod, func(ctx context.Context) error {
		if last = l.nobodyElse(ctx); last == nil || apierrors.IsForbidden(last) {
			return nil
		}
		waiting(last.Error())
		return last
	})
	if apierrors.IsForbidden(last) {
		return fmt.Errorf("%w\n    → control planes come first: podium upgrade apply there", last)
	}
	return waited
}

// nobodyElse says which other machine has its turn.
func (l *live) nobodyElse(ctx context.Context) error {
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

// turn calls do, once, while it is this machine's turn. do's context ends when
// that is lost: the cluster was out of reach for too long.
func (l *live) turn(ctx context.Context, do func(context.Context) error) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	result := errors.New("this machine did not get its turn: podium upgrade plan says who has it")
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
	return l.api.Cordon(ctx, l.Node, cordoned, upgradeNote, note)
}

func (l *live) drain(ctx context.Context, waiting func(string)) error {
	return l.api.Drain(ctx, l.Node, waiting)
}

func (l *live) settings(ctx context.Context, _ func(string)) error {
	return errors.Join(l.upload(ctx), l.applyDNS(ctx))
}

// backup is one step of an upgrade, and shows none of its own.
func (l *live) backup(ctx context.Context, file string) error {
	quiet := *l.machine
	quiet.Out = io.Discard
	return quiet.backup(ctx, file)
}

func (l *live) apiserver(ctx context.Context, waiting func(string)) error {
	return l.apiserverReady(ctx, waiting)
}
