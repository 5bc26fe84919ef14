package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/cluster/machine/etcd"
	"podium/pkg/cluster/poll"
)

// etcdAccess returns this machine's credentials for etcd.
func (m *machine) etcdAccess() etcd.Access { return etcd.Access{PKI: m.at(pkiDir)} }

// planes returns the addresses of the other control planes. It returns an error
// if there are none.
func (m *machine) planes(ctx context.Context) (hosts []string, err error) {
	cl, err := m.admin()
	if err != nil {
		return nil, err
	}
	defer cl.CloseIdle()
	nodes, err := client.For[*corev1.Node](cl).List(ctx, metav1.ListOptions{LabelSelector: controlPlaneLabel})
	if err != nil {
		return nil, fmt.Errorf("list the control planes: %w", err)
	}
	for _, n := range nodes.Items {
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP && a.Address != m.NodeIP {
				hosts = append(hosts, a.Address)
			}
		}
	}
	if len(hosts) == 0 {
		return nil, errors.New("the cluster has no other control plane")
	}
	return hosts, nil
}

// joinEtcd makes this machine a member of etcd: first a learner, which does not
// affect the quorum if it never starts, then a voter. It blocks until the
// member is promoted.
func (j *joining) joinEtcd(ctx context.Context, waiting func(string)) error {
	hosts, err := j.planes(ctx)
	if err != nil {
		return err
	}
	cl, err := j.etcdAccess().Dial(ctx, hosts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	var id uint64
	err = j.wait(ctx, waiting, func(ctx context.Context) (err error) {
		id, err = j.becomeMember(ctx, cl)
		return err
	})
	if err != nil {
		return err
	}
	if err := errors.Join(j.saveConfig(), j.start(ctx, []unit{j.etcd()})); err != nil {
		return err
	}
	return j.wait(ctx, waiting, func(ctx context.Context) error { return etcd.Promote(ctx, cl, id) }, "etcd")
}

// becomeMember returns the ID of this machine's member and records the initial
// cluster: etcd requires it at its first start, and the same value at every
// later one.
func (j *joining) becomeMember(ctx context.Context, cl *clientv3.Client) (uint64, error) {
	_, err := os.Stat(j.at(etcdData, "member"))
	hasData := err == nil
	joined, err := etcd.Join(ctx, cl, j.Node, etcd.PeerURL(j.NodeIP), hasData)
	if err != nil {
		return 0, err
	}
	j.EtcdMembers = joined.Initial
	if hasData {
		before, err := loadMachine(j.Config, j.host)
		if err != nil {
			return 0, err
		}
		j.EtcdMembers = before.EtcdMembers
	}
	return joined.ID, nil
}

// leaveTimeout is how long to retry the removal of a member: etcd refuses it
// for some seconds after another change of the membership.
const leaveTimeout = 20 * time.Second

// leaveEtcd removes this machine's member while it still runs, so that the
// quorum of the others shrinks. If that fails it prints a warning and returns
// nil: a broken machine can still be reset.
func (m *machine) leaveEtcd(ctx context.Context) error {
	if _, err := os.Stat(m.at(etcdData, "member")); err != nil {
		return nil
	}
	err := errors.New("etcd does not run here")
	if m.active(ctx, "etcd") {
		trying, cancel := context.WithTimeout(ctx, leaveTimeout)
		defer cancel()
		err = poll.Until(trying, 500*time.Millisecond, m.etcdAccess().Leave)
	}
	if err != nil {
		fmt.Fprintf(m.Out, "   warning: this machine's member of etcd stays (%v); if there are other control planes, run there: podium etcd remove %s\n", err, m.Node)
	}
	return nil
}

// ListMembers prints etcd's members with role and state to cfg.Out. It works on
// control planes only.
func ListMembers(ctx context.Context, cfg Config, host Host) error {
	m, err := loadMachine(cfg, host)
	if err != nil {
		return err
	}
	members, err := m.etcdMembers(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(cfg.Out, "%-32s %-32s %-8s %s\n", "NAME", "PEER", "ROLE", "STATE")
	for _, e := range members {
		fmt.Fprintf(cfg.Out, "%-32s %-32s %-8s %s\n", e.Name, strings.Join(e.Peers, ","), e.Role, e.State)
	}
	return nil
}

func (m *machine) etcdMembers(ctx context.Context) ([]etcd.Member, error) {
	cl, err := m.anyEtcd(ctx)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	return m.etcdAccess().Members(ctx, cl)
}

// RemoveMember removes the etcd member of a machine that is permanently lost,
// by its name or peer URL. It returns an error for this machine's own member,
// which Reset removes.
func RemoveMember(ctx context.Context, cfg Config, host Host, name string) error {
	m, err := loadMachine(cfg, host)
	if err != nil {
		return err
	}
	if name == m.Node {
		return errors.New("that is this machine: podium reset takes it out of the cluster, its member of etcd included")
	}
	cl, err := m.anyEtcd(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	list, err := cl.MemberList(ctx)
	if err != nil {
		return err
	}
	for _, e := range list.Members {
		if e.Name == name || slices.Contains(e.PeerURLs, name) {
			if _, err := cl.MemberRemove(ctx, e.ID); err != nil {
				return fmt.Errorf("remove %s from etcd's members: %w", name, err)
			}
			fmt.Fprintf(cfg.Out, "etcd member %s removed\n", name)
			return nil
		}
	}
	return fmt.Errorf("etcd has no member of the name or peer URL %s: podium etcd list", name)
}

// anyEtcd connects to this machine's member, or to another one if that is down.
// The caller closes the client.
func (m *machine) anyEtcd(ctx context.Context) (*clientv3.Client, error) {
	cl, err := m.etcdAccess().DialLocal(ctx)
	if err == nil {
		return cl, nil
	}
	hosts, listing := m.planes(ctx)
	if listing != nil {
		return nil, errors.Join(err, listing)
	}
	return m.etcdAccess().Dial(ctx, hosts...)
}
