// Package etcd manages the members of a cluster's etcd: it lists them with
// their state, and adds and removes the member of a machine.
package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"podium/pkg/cluster/pki"
)

// Ports of every member.
const (
	ClientPort = 2379
	PeerPort   = 2380
)

// ClientURL returns the URL at which a member on host serves clients.
func ClientURL(host string) string {
	return "https://" + net.JoinHostPort(host, strconv.Itoa(ClientPort))
}

// PeerURL returns the URL at which a member on host serves the other members.
func PeerURL(host string) string {
	return "https://" + net.JoinHostPort(host, strconv.Itoa(PeerPort))
}

// Patience is the timeout for one member's answer.
const Patience = 3 * time.Second

// local is the address at which a machine's own member answers.
const local = "127.0.0.1"

// Access holds the credentials of an etcd client: the PKI directory of a
// control plane's machine.
type Access struct{ PKI string }

// Dial connects to the first of the hosts whose member can list the members,
// which a member without a quorum cannot. It tries each host for at most
// Patience. The caller closes the client.
func (a Access) Dial(ctx context.Context, hosts ...string) (*clientv3.Client, error) {
	certFile, keyFile := pki.Files(a.PKI, "apiserver-etcd-client")
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("read etcd's client certificate (this is done on a control plane's machine): %w", err)
	}
	ca, err := os.ReadFile(filepath.Join(a.PKI, "etcd/ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	var errs []error
	for _, host := range hosts {
		cl, err := clientv3.New(clientv3.Config{
			Endpoints: []string{ClientURL(host)}, DialTimeout: Patience, Logger: zap.NewNop(),
			TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}},
		})
		if err != nil {
			return nil, err
		}
		asking, cancel := context.WithTimeout(ctx, Patience)
		_, err = cl.MemberList(asking)
		cancel()
		if err == nil {
			return cl, nil
		}
		errs = append(errs, fmt.Errorf("etcd at %s: %w", ClientURL(host), err), cl.Close())
	}
	return nil, errors.Join(errs...)
}

// DialLocal is Dial for the member of this machine.
func (a Access) DialLocal(ctx context.Context) (*clientv3.Client, error) { return a.Dial(ctx, local) }

// Member is a member of etcd with its state.
type Member struct {
	ID    uint64
	Name  string // "<not started>" before its first start
	Peers []string
	Role  string // "voter", "learner" or "leader"
	State string // "healthy", "not started", or "unhealthy: " and the reason
}

// Members returns all members, sorted by name. It asks each of them for its
// state; one that does not answer is in the list as unhealthy.
func (a Access) Members(ctx context.Context, cl *clientv3.Client) ([]Member, error) {
	list, err := cl.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	var out []Member
	for _, e := range list.Members {
		m := Member{ID: e.ID, Name: cmp.Or(e.Name, "<not started>"), Peers: e.PeerURLs}
		m.Role, m.State = a.examine(ctx, e)
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// examine returns the role and state of a member, which it asks for its status.
func (a Access) examine(ctx context.Context, e *etcdserverpb.Member) (role, state string) {
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
	cl, err := a.Dial(ctx, u.Hostname())
	if err != nil {
		return role, "unhealthy: does not answer"
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, Patience)
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

// membership is what Join has to do for a machine's member.
type membership struct {
	remove uint64 // ID of a member that has lost its data; 0: none
	add    bool
	id     uint64 // ID of the existing member, if add is false
}

// judge compares the cluster's members with this machine's data. A member that
// was added but never started has no name yet: it is used again.
func judge(members []*etcdserverpb.Member, peer string, hasData bool) (membership, error) {
	i := slices.IndexFunc(members, func(e *etcdserverpb.Member) bool { return slices.Contains(e.PeerURLs, peer) })
	switch {
	case i < 0 && hasData:
		return membership{}, errors.New("etcd's data directory is not empty, but this machine is not a member of the cluster's etcd: podium reset, then join again")
	case i < 0:
		return membership{add: true}, nil
	case members[i].Name != "" && !hasData:
		return membership{remove: members[i].ID, add: true}, nil
	}
	return membership{id: members[i].ID}, nil
}

// initialCluster returns the value of --initial-cluster for a new member.
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

// Joined is a machine's member.
type Joined struct {
	ID      uint64
	Initial string // if the member has data: it then uses the value of its first start
}

// Join makes the machine with this name and peer URL a member: a learner, which
// does not affect the quorum if it never starts. It continues what an earlier
// call began; hasData says whether the machine has a member's data. Only one
// learner can exist at a time. Join does not wait for the member to start.
func Join(ctx context.Context, cl *clientv3.Client, name, peer string, hasData bool) (Joined, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*Patience)
	defer cancel()
	list, err := cl.MemberList(ctx)
	if err != nil {
		return Joined{}, err
	}
	todo, err := judge(list.Members, peer, hasData)
	if err != nil || hasData {
		return Joined{ID: todo.id}, err
	}
	if todo.remove != 0 {
		if _, err := cl.MemberRemove(ctx, todo.remove); err != nil {
			return Joined{}, fmt.Errorf("remove this machine's former member: %w", err)
		}
	}
	members := list.Members
	if todo.add {
		added, err := cl.MemberAddAsLearner(ctx, []string{peer})
		if errors.Is(err, rpctypes.ErrTooManyLearners) {
			return Joined{}, errors.New("another control plane is joining: one at a time (podium etcd list, on a control plane's machine, shows which; one that will never come: podium etcd remove)")
		}
		if err != nil {
			return Joined{}, fmt.Errorf("add a member to etcd: %w", err)
		}
		todo.id, members = added.Member.ID, added.Members
	}
	return Joined{ID: todo.id, Initial: initialCluster(members, todo.id, name)}, nil
}

// Promote makes a learner a voter. etcd returns an error until the member has
// caught up: the caller retries. It returns nil for a member that is a voter
// already.
func Promote(ctx context.Context, cl *clientv3.Client, id uint64) error {
	ctx, cancel := context.WithTimeout(ctx, 2*Patience)
	defer cancel()
	_, err := cl.MemberPromote(ctx, id)
	if errors.Is(err, rpctypes.ErrMemberNotLearner) {
		return nil
	}
	return err
}

// Leave removes the member of this machine, unless it is the last one. It
// returns nil for a member that is removed already.
func (a Access) Leave(ctx context.Context) error {
	cl, err := a.DialLocal(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*Patience)
	defer cancel()
	list, err := cl.MemberList(ctx)
	if err != nil || len(list.Members) == 1 {
		return err // the last member cannot be removed
	}
	_, err = cl.MemberRemove(ctx, list.Header.MemberId)
	if errors.Is(err, rpctypes.ErrMemberNotFound) {
		return nil
	}
	return err
}

// MoveLeader transfers the leadership to another voter if this machine's member
// is the leader: its restart then needs no election. It returns nil if there is
// no other voter.
func (a Access) MoveLeader(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*Patience)
	defer cancel()
	cl, err := a.DialLocal(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	list, err := cl.MemberList(ctx)
	if err != nil {
		return err
	}
	status, err := cl.Status(ctx, ClientURL(local))
	if err != nil || status.Leader != status.Header.MemberId {
		return err
	}
	for _, e := range list.Members {
		if e.ID != status.Header.MemberId && !e.IsLearner {
			_, err := cl.MoveLeader(ctx, e.ID)
			return err
		}
	}
	return nil // no other voter
}
