package flowcontrol

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
)

func get(user string, groups ...string) *request.Request {
	return of(user, groups, request.Info{Verb: "get", IsResource: true, Resource: "pods", Namespace: "default"})
}

func of(user string, groups []string, info request.Info) *request.Request {
	r := request.New(info, nil)
	groups = append(slices.Clone(groups), "system:authenticated")
	if strings.HasPrefix(user, accountPrefix) {
		groups = append(groups, "system:serviceaccounts")
	}
	r.User = &request.User{Name: user, Groups: groups}
	return r
}

func lease(user string, groups ...string) *request.Request {
	return of(user, groups, request.Info{Verb: "update", IsResource: true, Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-node-lease"})
}

// begun returns the place of a request that has one.
func begun(t *testing.T, f *Limiter, r *request.Request) *Place {
	t.Helper()
	p := &Place{}
	if err := f.Begin(p, r); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDefaultSchemas(t *testing.T) {
	f := New(Config{})
	nodes := []string{nodesGroup}
	resource := request.Info{Verb: "list", IsResource: true, Resource: "pods"}
	for _, tc := range []struct {
		request *request.Request
		want    string
	}{
		{get("root", authn.Masters), "exempt/exempt"},
		{of("mallory", nil, request.Info{Verb: "get", Path: "/readyz/etcd"}), "probes/exempt"},
		{of("mallory", nil, request.Info{Verb: "get", Path: "/readyzzz"}), "global-default/global-default"},
		{of("mallory", nil, request.Info{Verb: "post", Path: "/readyz"}), "global-default/global-default"},
		{lease("system:kube-scheduler"), "system-leader-election/leader-election"},
		{lease("system:serviceaccount:kube-system:x"), "system-leader-election/leader-election"},
		{lease("system:serviceaccount:kube-system-x:x"), "service-accounts/workload-low"},
		{lease("system:node:a", nodesGroup), "system-node-high/node-high"},
		{of("system:node:a", nodes, request.Info{Verb: "patch", IsResource: true, Resource: "nodes", Subresource: "status", Name: "a"}), "system-node-high/node-high"},
		{of("system:node:a", nodes, request.Info{Verb: "get", IsResource: true, Resource: "nodes", Subresource: "proxy", Name: "a"}), "system-nodes/system"},
		{of("system:node:a", nodes, resource), "system-nodes/system"},
		{of("system:kube-controller-manager", nil, resource), "kube-controller-manager/workload-high"},
		{of("system:kube-scheduler", nil, resource), "kube-scheduler/workload-high"},
		{get("system:serviceaccount:kube-system:x"), "kube-system-service-accounts/workload-high"},
		{get("system:serviceaccount:one:a"), "service-accounts/workload-low"},
		{get("mallory"), "global-default/global-default"},
	} {
		s := f.classify(tc.request)
		if got := s.name + "/" + s.level.name; got != tc.want {
			t.Errorf("%s %+v: %s, want %s", tc.request.User.Name, tc.request.Info, got, tc.want)
		}
	}
	if s := f.classify(&request.Request{User: &request.User{Name: "in no group"}}); s.name != "catch-all" {
		t.Errorf("%s", s.name)
	}
}

// One user takes at most half of the places of a level, service accounts of a
// namespace count as one user, and requests of the system have places of their own.
func TestPlacesOfAUser(t *testing.T) {
	f := New(Config{Reads: 20, Writes: 20})
	for _, tc := range []struct {
		name    string
		request func() *request.Request
		want    int
	}{
		{"mallory", func() *request.Request { return get("mallory") }, 10},
		{"another user", func() *request.Request { return get("oscar") }, 10},
		{"a service account", func() *request.Request { return get("system:serviceaccount:one:a") }, 10},
		{"another of its namespace", func() *request.Request { return get("system:serviceaccount:one:b") }, 0},
		{"of another namespace", func() *request.Request { return get("system:serviceaccount:two:a") }, 10},
		{"a node", func() *request.Request { return get("system:node:a", nodesGroup) }, 5},
		{"its lease", func() *request.Request { return lease("system:node:a", nodesGroup) }, 5},
		{"an administrator", func() *request.Request { return get("root", authn.Masters) }, 100},
	} {
		got := 0
		for range 100 {
			if f.Begin(&Place{}, tc.request()) == nil {
				got++
			}
		}
		if got != tc.want {
			t.Errorf("%s: %d places, want %d", tc.name, got, tc.want)
		}
	}
}

func TestAnUnreadAnswerHoldsNoSeat(t *testing.T) {
	f := New(Config{Reads: 2, Writes: 2})
	p := begun(t, f, get("mallory"))
	if err := p.TakeSeat(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if reads, _ := f.Counts(); reads != 1 {
		t.Errorf("%d seats are taken", reads)
	}
	p.FreeSeat()
	if reads, _ := f.Counts(); reads != 0 {
		t.Errorf("%d seats are taken", reads)
	}
	if err := f.Begin(&Place{}, get("mallory")); !apierrors.IsTooManyRequests(err) {
		t.Errorf("it counts for its user: %v", err)
	}
	p.End()
	p = begun(t, f, get("mallory"))
	p.End()
	if len(f.users) != 0 {
		t.Errorf("%v are left", f.users)
	}
}

func TestLongRunningRequestsOfOneUser(t *testing.T) {
	f := New(Config{Reads: 4, Writes: 4, LongRunning: 7})
	watches := func(user string, groups ...string) (n int) {
		for range 100 {
			r := of(user, groups, request.Info{Verb: "watch", IsResource: true, Resource: "pods"})
			if f.Begin(&Place{}, r) == nil {
				n++
			}
		}
		return n
	}
	if got := watches("mallory"); got != 7 {
		t.Errorf("%d watches, want 7", got)
	}
	if got := watches("system:node:a", nodesGroup); got != 70 {
		t.Errorf("%d watches of a node, want 70", got)
	}
}

// Requests of a flood wait, those of other flows of the level take turns with them,
// and other levels are not concerned.
func TestQueuesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Config{Reads: 200, Writes: 100, Wait: time.Minute})
		var mu sync.Mutex
		var log []string
		work := func(r *request.Request, name string) {
			p := begun(t, f, r)
			defer p.End()
			if err := p.TakeSeat(t.Context(), 1); err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			mu.Lock()
			log = append(log, name)
			mu.Unlock()
			time.Sleep(time.Second)
		}
		level := f.classify(get("mallory")).level
		level.max = 1
		for range 20 {
			go work(get("mallory"), "mallory")
			synctest.Wait()
		}
		go work(get("alice"), "alice")
		synctest.Wait()
		began := time.Now()
		work(lease("system:node:a", nodesGroup), "heartbeat")
		work(get("root", authn.Masters), "administrator")
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("requests of other levels waited: %v", took)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		// mallory's requests are in at most six queues, and each of these has a turn.
		if i := slices.Index(log, "alice"); i < 0 || i > 9 {
			t.Errorf("%v", log)
		}
		if len(log) != 23 {
			t.Errorf("%d of 23 requests were executed: %v", len(log), log)
		}
		if len(level.queues) != 0 || level.running+level.waiting+level.runningSeats+level.waitingSeats != 0 {
			t.Errorf("%+v", level)
		}
	})
}

func TestWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Config{Reads: 200, Writes: 100, Wait: 15 * time.Second})
		level := f.classify(get("mallory")).level
		level.max = 1
		first := begun(t, f, get("mallory"))
		if err := first.TakeSeat(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		waits := func(ctx context.Context) time.Duration {
			p, began := begun(t, f, get("mallory")), time.Now()
			defer p.End()
			if err := p.TakeSeat(ctx, 1); !apierrors.IsTooManyRequests(err) {
				t.Errorf("%v", err)
			}
			return time.Since(began)
		}
		if got := waits(t.Context()); got != 15*time.Second {
			t.Errorf("without a deadline: %v", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if got := waits(ctx); got != 5*time.Second {
			t.Errorf("a quarter of the deadline: %v", got)
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if got := waits(ctx); got != time.Second {
			t.Errorf("the client gave up: %v", got)
		}
		if level.waiting != 0 || level.rejected[timeOut] != 2 || level.rejected[cancelled] != 1 {
			t.Errorf("%+v", level)
		}
		first.End()
	})
}

func TestQueuesHaveALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Config{Reads: 2000, Writes: 100, Wait: time.Minute})
		s := f.classify(get("mallory"))
		s.level.max, s.level.cfg.length = 1, 3
		var mu sync.Mutex
		codes := map[bool]int{}
		for range 100 {
			go func() {
				p := begun(t, f, get("mallory"))
				defer p.End()
				err := p.TakeSeat(t.Context(), 1)
				mu.Lock()
				codes[err == nil]++
				mu.Unlock()
				time.Sleep(10 * time.Millisecond)
			}()
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		// A hand of 6 queues of 3 requests, and the one that is executed.
		if codes[true] != 19 || codes[false] != 81 {
			t.Errorf("%v", codes)
		}
	})
}

// A request that is wider than what is left waits, and narrow ones do not overtake it
// for ever.
func TestWideRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Config{Reads: 2000, Writes: 1000, Wait: time.Minute})
		level := f.classify(get("mallory")).level
		level.max, level.cfg.widest = 5, 10
		var order []string
		run := func(user string, width int) {
			go func() {
				p := begun(t, f, get(user))
				defer p.End()
				if err := p.TakeSeat(t.Context(), width); err != nil {
					t.Error(err)
				}
				level.mu.Lock()
				order = append(order, user)
				if user == "wide" && level.runningSeats != 10 {
					t.Errorf("it is not alone: %d seats", level.runningSeats)
				}
				level.mu.Unlock()
				time.Sleep(time.Second)
			}()
			synctest.Wait()
		}
		run("first", 1)
		run("wide", 10)
		for range 40 {
			run("narrow", 1)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if i := slices.Index(order, "wide"); i < 0 || i > 20 || len(order) != 42 {
			t.Errorf("%d: %v", i, order)
		}
	})
}

func TestWithoutPriorities(t *testing.T) {
	f := New(Config{Reads: 3, Writes: 2, Plain: true})
	seated := func(r func() *request.Request) (n int) {
		for i := range 10 {
			r := r()
			if r.User.Name == "" {
				r.User.Name = fmt.Sprint(i)
			}
			p := &Place{}
			if f.Begin(p, r) == nil && p.TakeSeat(t.Context(), 5) == nil {
				n++
			}
		}
		return n
	}
	if n := seated(func() *request.Request { return get("") }); n != 3 {
		t.Errorf("%d reads", n)
	}
	if n := seated(func() *request.Request { return lease("") }); n != 2 {
		t.Errorf("%d writes", n)
	}
	if n := seated(func() *request.Request { return get("root", authn.Masters) }); n != 10 {
		t.Errorf("%d of an administrator", n)
	}
}
