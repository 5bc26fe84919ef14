package flowcontrol

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
)

func get(user string, groups ...string) *request.Request {
	return of(&request.User{Name: user, Groups: groups}, request.Info{Verb: "get", IsResource: true, Resource: "pods"})
}

func of(user *request.User, info request.Info) *request.Request {
	r := request.New(info, nil)
	r.User = user
	return r
}

// seated are how many of 100 requests find a seat.
func seated(f *Inflight, r func() *request.Request) (n int) {
	for range 100 {
		p, err := f.Begin(r())
		if err == nil && p.TakeSeat() == nil {
			n++
		}
	}
	return n
}

func TestSeatsAreReserved(t *testing.T) {
	f := NewInflight(Config{Reads: 20, Writes: 20})
	lease := func() *request.Request {
		return of(&request.User{Name: "system:node:a", Groups: []string{nodesGroup}}, request.Info{Verb: "update", IsResource: true, Resource: "leases"})
	}
	for _, tc := range []struct {
		name, reason string
		request      func() *request.Request
		want         int
	}{
		{"mallory", "one user has half of the seats", func() *request.Request { return get("mallory") }, 10},
		{"another user", "the other half is left", func() *request.Request { return get("oscar") }, 10},
		{"a third", "the level is full", func() *request.Request { return get("trudy") }, 0},
		{"a service account", "a level of its own", func() *request.Request { return get("system:serviceaccount:one:a") }, 10},
		{"another of its namespace", "they share", func() *request.Request { return get("system:serviceaccount:one:b") }, 0},
		{"of another namespace", "it has its own share", func() *request.Request { return get("system:serviceaccount:two:a") }, 10},
		{"of kube-system", "a level of its own", func() *request.Request { return get("system:serviceaccount:kube-system:x") }, 5},
		{"of a namespace that begins like it", "no part of the system", func() *request.Request { return get("system:serviceaccount:kube-system-x:x") }, 0},
		{"the scheduler", "the rest of that level", func() *request.Request { return get("system:kube-scheduler") }, 5},
		{"a node", "a level of its own", func() *request.Request { return get("system:node:a", nodesGroup) }, 5},
		{"its lease", "heartbeats apart from all else", lease, 5},
		{"an administrator", "never refused", func() *request.Request { return get("root", authn.Masters) }, 100},
		{"a probe", "never refused", func() *request.Request {
			return of(&request.User{Name: "mallory"}, request.Info{Verb: "get", Path: "/readyz/etcd"})
		}, 100},
	} {
		if got := seated(f, tc.request); got != tc.want {
			t.Errorf("%s: %d seats, want %d; %s", tc.name, got, tc.want, tc.reason)
		}
	}
}

func TestAnUnreadAnswerHoldsNoSeat(t *testing.T) {
	f := NewInflight(Config{Reads: 2, Writes: 2})
	p, err := f.Begin(get("mallory"))
	if err != nil || p.TakeSeat() != nil {
		t.Fatal(err)
	}
	if reads, _ := f.Counts(); reads != 1 {
		t.Errorf("%d seats are taken", reads)
	}
	p.FreeSeat()
	if reads, _ := f.Counts(); reads != 0 {
		t.Errorf("%d seats are taken", reads)
	}
	if _, err := f.Begin(get("mallory")); !apierrors.IsTooManyRequests(err) {
		t.Errorf("it counts for its user: %v", err)
	}
	p.End()
	if p, err = f.Begin(get("mallory")); err != nil {
		t.Fatal(err)
	}
	p.End()
	if len(f.users) != 0 {
		t.Errorf("%v are left", f.users)
	}
}

func TestLongRunningRequestsOfOneUser(t *testing.T) {
	f := NewInflight(Config{Reads: 4, Writes: 4, LongRunning: 7})
	watch := func(user string, groups ...string) func() *request.Request {
		return func() *request.Request {
			return of(&request.User{Name: user, Groups: groups}, request.Info{Verb: "watch", IsResource: true, Resource: "pods"})
		}
	}
	if got := seated(f, watch("mallory")); got != 7 {
		t.Errorf("%d watches, want 7", got)
	}
	if got := seated(f, watch("system:node:a", nodesGroup)); got != 70 {
		t.Errorf("%d watches of a node, want 70", got)
	}
	if got := seated(f, func() *request.Request { return get("mallory") }); got != 2 {
		t.Errorf("%d reads beside them, want 2", got)
	}
}
