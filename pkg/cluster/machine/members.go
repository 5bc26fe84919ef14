package machine

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/cluster/pki"
	"podium/pkg/cluster/poll"
)

// etcdPatience is how long one member may take to answer.
const etcdPatience = 3 * time.Second

// dialEtcd speaks to the first member at one of these addresses that knows
// who the members are: one without a quorum does not.
func (m *machine) dialEtcd(ctx context.Context, hosts ...string) (*clientv3.Client, error) {
	certFile, keyFile := pki.Files(m.at(pkiDir), "apiserver-etcd-client")
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("read etcd's client certificate (this is done on a control plane's machine): %w", err)
	}
	ca, err := os.ReadFile(m.at(pkiDir, "etcd/ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	var errs []error
	for _, host := range hosts {
		cl, err := clientv3.New(clientv3.Config{
			Endpoints: []string{clientURL(host)}, DialTimeout: etcdPatience, Logger: zap.NewNop(),
			TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}},
		})
		if err != nil {
			return nil, err
		}
		asking, cancel := context.WithTimeout(ctx, etcdPatience)
		_, err = cl.MemberList(asking)
		cancel()
		if err == nil {
			return cl, nil
		}
		errs = append(errs, fmt.Errorf("etcd at %s: %w", clientURL(host), err), cl.Close())
	}
	return nil, errors.Join(errs...)
}

// planes are the addresses of the other control planes.
func (m *machine) planes(ctx context.Context) (hosts []string, err error) {
	cl, err := m.admin()
	if err != nil {
		return nil, err
	}
	defer cl.CloseIdle()
	nodes, err := client.For[*corev1.Node](cl).List(ctx, metav1.ListOptions{LabelSelector: controlPlaneLabel})
	if err != nil {
		return nil, fmt.Errorf("ask which control planes there are: %w", err)
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

// membership is what is to be done about this machine's member of etcd.
type membership struct {
	remove uint64 // one that has lost its data
	add    bool
	id     uint64 // the one to go on with
}

// judge compares the cluster's members with what this machine holds. A member
// that was added but never ran has no name yet: it is taken up again.
func judge(members []*etcdserverpb.Member, peer string, hasData bool) (membership, error) {
	i := slices.IndexFunc(members, func(e *etcdserverpb.Member) bool { return slices.Contains(e.PeerURLs, peer) })
	switch {
	case i < 0 && hasData:
		return membership{}, fmt.Errorf("%s holds data, but this machine is no member of the cluster's etcd: podium reset, then again", etcdData)
	case i < 0:
		return membership{add: true}, nil
	case members[i].Name != "" && !hasData:
		return membership{remove: members[i].ID, add: true}, nil
	}
	return membership{id: members[i].ID}, nil
}

// initialCluster is the list by which a new member finds the others.
func initialCluster(members []*etcdserverpb.Member, self uint64, name string) string {
	var out []string
	for _, e := range members {
		n := e.Name
		if e.ID == self {
			n = name
		}
		for _, u := range e.PeerURLs {
			out = append(out, n+"="+u)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

// joinEtcd makes this machine a member of etcd: first one that only learns,
// which costs the others nothing if it never comes up, then a full one.
func (j *joining) joinEtcd(ctx context.Context, waiting func(string)) error {
	hosts, err := j.planes(ctx)
	if err != nil {
		return err
	}
	cl, err := j.dialEtcd(ctx, hosts...)
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
	if err := errors.Join(j.remember(), j.start(ctx, []unit{j.etcd()})); err != nil {
		return err
	}
	return j.wait(ctx, waiting, func(ctx context.Context) error { return promote(ctx, cl, id) }, "etcd")
}

// becomeMember returns the member that is this machine's, and notes who the
// members were when it was added: etcd wants to be told on its first start,
// and to be told the same ever after.
func (j *joining) becomeMember(ctx context.Context, cl *clientv3.Client) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*etcdPatience)
	defer cancel()
	list, err := cl.MemberList(ctx)
	if err != nil {
		return 0, err
	}
	_, err = os.Stat(j.at(etcdData, "member"))
	hasData := err == nil
	todo, err := judge(list.Members, j.peerURL(j.NodeIP), hasData)
	if err != nil {
		return 0, err
	}
	if hasData {
		before, err := recall(j.Config, j.host)
		if err != nil {
			return 0, err
		}
		j.EtcdMembers = before.EtcdMembers
		return todo.id, nil
	}
	if todo.remove != 0 {
		if _, err := cl.MemberRemove(ctx, todo.remove); err != nil {
			return 0, fmt.Errorf("remove this machine's former member: %w", err)
		}
	}
	members := list.Members
	if todo.add {
		added, err := cl.MemberAddAsLearner(ctx, []string{j.peerURL(j.NodeIP)})
		if errors.Is(err, rpctypes.ErrTooManyLearners) {
			return 0, errors.New("another control plane is joining: one at a time (podium etcd list, on a control plane's machine, shows which; one that will never come: podium etcd remove)")
		}
		if err != nil {
			return 0, fmt.Errorf("add a member to etcd: %w", err)
		}
		todo.id, members = added.Member.ID, added.Members
	}
	j.EtcdMembers = initialCluster(members, todo.id, j.Node)
	return todo.id, nil
}

// promote gives a member its vote. It is refused until the member has caught up.
func promote(ctx context.Context, cl *clientv3.Client, id uint64) error {
	ctx, cancel := context.WithTimeout(ctx, 2*etcdPatience)
	defer cancel()
	_, err := cl.MemberPromote(ctx, id)
	if errors.Is(err, rpctypes.ErrMemberNotLearner) {
		return nil
	}
	return err
}

// leavePatience is how long etcd may refuse to let a member go: it does for
// some seconds when another has just come or gone.
const leavePatience = 20 * time.Second

// leaveEtcd removes this machine's member while it still runs, so that the
// others need not wait for it any more. What keeps a broken machine from that
// does not keep it from its reset.
func (m *machine) leaveEtcd(ctx context.Context) error {
	if _, err := os.Stat(m.at(etcdData, "member")); err != nil {
		return nil
	}
	err := errors.New("etcd does not run here")
	if m.active(ctx, "etcd") {
		trying, cancel := context.WithTimeout(ctx, leavePatience)
		defer cancel()
		err = poll.Until(trying, 500*time.Millisecond, m.removeSelf)
	}
	if err != nil {
		fmt.Fprintf(m.Out, "   warning: this machine's member of etcd stays (%v); if there are other control planes, run there: podium etcd remove %s\n", err, m.Node)
	}
	return nil
}

func (m *machine) removeSelf(ctx context.Context) error {
	cl, err := m.dialEtcd(ctx, "127.0.0.1")
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*etcdPatience)
	defer cancel()
	list, err := cl.MemberList(ctx)
	if err != nil || len(list.Members) == 1 {
		return err // the last one goes with its data
	}
	_, err = cl.MemberRemove(ctx, list.Header.MemberId)
	if errors.Is(err, rpctypes.ErrMemberNotFound) {
		return nil
	}
	return err
}

// ListMembers prints etcd's members and how they are.
func ListMembers(ctx context.Context, cfg Config, host Host) error {
	m, err := recall(cfg, host)
	if err != nil {
		return err
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
	slices.SortFunc(list.Members, func(a, b *etcdserverpb.Member) int { return cmp.Compare(a.Name, b.Name) })
	fmt.Fprintf(cfg.Out, "%-32s %-32s %-8s %s\n", "NAME", "PEER", "ROLE", "STATE")
	for _, e := range list.Members {
		role, state := m.examine(ctx, e)
		fmt.Fprintf(cfg.Out, "%-32s %-32s %-8s %s\n", cmp.Or(e.Name, "<not started>"), strings.Join(e.PeerURLs, ","), role, state)
	}
	return nil
}

// examine asks a member itself.
func (m *machine) examine(ctx context.Context, e *etcdserverpb.Member) (role, state string) {
	role = "voter"
	if e.IsLearner {
		role = "learner"
	}
	if len(e.ClientURLs) == 0 {
		return role, "not started"
	}
	u, err := url.Parse(e.ClientURLs[0])
	if err != nil {
		return role, err.Error()
	}
	cl, err := m.dialEtcd(ctx, u.Hostname())
	if err != nil {
		return role, "unhealthy: does not answer"
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, etcdPatience)
	defer cancel()
	status, err := cl.Status(ctx, e.ClientURLs[0])
	switch {
	case err != nil:
		return role, "unhealthy: " + err.Error()
	case len(status.Errors) > 0:
		return role, "unhealthy: " + strings.Join(status.Errors, ", ")
	case status.Leader == e.ID:
		role = "leader"
	}
	return role, "healthy"
}

// RemoveMember takes a machine that is gone for good out of etcd's members.
func RemoveMember(ctx context.Context, cfg Config, host Host, name string) error {
	m, err := recall(cfg, host)
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

// anyEtcd speaks to this machine's member, or, while that is down, to another's.
func (m *machine) anyEtcd(ctx context.Context) (*clientv3.Client, error) {
	cl, err := m.dialEtcd(ctx, "127.0.0.1")
	if err == nil {
		return cl, nil
	}
	hosts, listing := m.planes(ctx)
	if listing != nil {
		return nil, errors.Join(err, listing)
	}
	return m.dialEtcd(ctx, hosts...)
}
