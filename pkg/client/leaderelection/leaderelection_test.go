package leaderelection_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/clienttest"
	"podium/pkg/client/leaderelection"
)

// stage runs competing replicas and records when each one leads.
type stage struct {
	t   *testing.T
	api *clienttest.Server

	mu      sync.Mutex
	began   time.Time
	leaders int
	notes   []string
	down    map[string]bool // replicas whose requests fail
	deaf    bool            // no replica may watch
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, api: clienttest.New(), began: time.Now(), down: map[string]bool{}}
	s.api.Before = func(r *http.Request) (*http.Response, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.down[r.Header.Get("User-Agent")] {
			return nil, io.ErrUnexpectedEOF
		}
		if s.deaf && r.URL.Query().Get("watch") != "" {
			return nil, errors.New("forbidden")
		}
		return nil, nil
	}
	return s
}

func (s *stage) setDown(id string, down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down[id] = down
}

func (s *stage) story() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.notes, ", ")
}

func (s *stage) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// replica competes for the lease until lead returns or stop is called.
func (s *stage) replica(id string) (stop func() error) {
	c, err := client.New(s.api.Client(s.t).Scheme(), client.Config{Servers: []string{"http://api"}, Transport: s.api, UserAgent: id})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() {
		done <- leaderelection.Run(ctx, leaderelection.Config{Client: c, Name: "job", Identity: id}, func(ctx context.Context) error {
			s.lead(1)
			s.note("%s leads", id)
			<-ctx.Done()
			s.note("%s ends", id)
			s.lead(-1)
			return ctx.Err()
		})
	}()
	return func() error { cancel(); return <-done }
}

func (s *stage) lead(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaders += n; s.leaders > 1 {
		s.t.Errorf("two leaders at %v: %v", time.Since(s.began), s.notes)
	}
}

func (s *stage) lease() *coordinationv1.Lease {
	l, err := client.For[*coordinationv1.Lease](s.api.Client(s.t)).In("kube-system").Get(s.t.Context(), "job")
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

func TestALeaderThatStopsMakesRoomAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		stopA := s.replica("a")
		time.Sleep(time.Second)
		stopB := s.replica("b")
		time.Sleep(time.Minute)
		if err := stopA(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if l := s.lease(); *l.Spec.HolderIdentity != "" {
			t.Errorf("not released: %v", l.Spec)
		}
		time.Sleep(time.Millisecond)
		if got := s.story(); got != "a leads, a ends, b leads" {
			t.Error(got)
		}
		l := s.lease()
		if *l.Spec.HolderIdentity != "b" || *l.Spec.LeaseTransitions != 1 || *l.Spec.LeaseDurationSeconds != 15 {
			t.Errorf("%+v", l.Spec)
		}
		_ = stopB()
	})
}

func TestPartitionedLeaderStopsBeforeItsLeaseExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		stopA := s.replica("a")
		time.Sleep(time.Second)
		stopB := s.replica("b")
		time.Sleep(30 * time.Second)
		s.setDown("a", true)
		time.Sleep(time.Minute)
		if got := s.story(); got != "a leads, a ends, b leads" {
			t.Error(got)
		}
		s.setDown("a", false) // it waits to lead again
		_ = stopB()
		time.Sleep(5 * time.Second)
		if got := s.story(); got != "a leads, a ends, b leads, b ends, a leads" {
			t.Error(got)
		}
		_ = stopA()
	})
}

func TestAShortInterruptionIsNoReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		stopA := s.replica("a")
		time.Sleep(time.Second)
		stopB := s.replica("b")
		for range 10 {
			time.Sleep(20 * time.Second)
			s.setDown("a", true)
			time.Sleep(6 * time.Second)
			s.setDown("a", false)
		}
		if got := s.story(); got != "a leads" {
			t.Error(got)
		}
		_ = stopA()
		_ = stopB()
	})
}

// foreign creates the Lease with another holder, for 15 s from renewed.
func (s *stage) foreign(renewed metav1.MicroTime) *coordinationv1.Lease {
	holder, seconds := "foreign", int32(15)
	lease, err := client.For[*coordinationv1.Lease](s.api.Client(s.t)).In("kube-system").Create(s.t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "job"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &renewed}})
	if err != nil {
		s.t.Fatal(err)
	}
	return lease
}

// A process that has the identity of the killed holder does not wait for the lease's end, and
// no other replica leads in between.
func TestTheSuccessorOfAKilledLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		stopA := s.replica("a")
		time.Sleep(time.Second)
		stopB := s.replica("b")
		time.Sleep(time.Minute)
		s.setDown("a", true) // it cannot release the lease
		_ = stopA()
		s.setDown("a", false)
		time.Sleep(time.Second)
		stopA = s.replica("a")
		time.Sleep(100 * time.Millisecond)
		if got := s.story(); got != "a leads, a ends, a leads" {
			t.Error(got)
		}
		time.Sleep(time.Minute)
		if got := s.story(); got != "a leads, a ends, a leads" {
			t.Error(got)
		}
		_ = stopA()
		_ = stopB()
	})
}

// A lease is acquired when it expires, not at the next regular attempt.
func TestALeaseIsTakenAsItRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.foreign(metav1.NowMicro())
		stopA, stopB := s.replica("a"), s.replica("b")
		time.Sleep(15*time.Second - time.Millisecond)
		if got := s.story(); got != "" {
			t.Errorf("taken too early: %s", got)
		}
		time.Sleep(2 * time.Millisecond)
		if got := s.story(); got != "a leads" && got != "b leads" {
			t.Errorf("its time is over: %q", got)
		}
		_ = stopA()
		_ = stopB()
	})
}

// The lease of a killed leader is acquired 15 s after it was last renewed: replicas that wait
// see renewals as they happen, or within a period if they may not watch.
func TestTheLeaseOfAKilledLeader(t *testing.T) {
	for name, tc := range map[string]struct {
		deaf bool
		late time.Duration
	}{"Watch": {false, time.Millisecond}, "Poll": {true, 2400 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			for killed := time.Minute; killed < time.Minute+2*time.Second; killed += 300 * time.Millisecond {
				synctest.Test(t, func(t *testing.T) {
					s := newStage(t)
					s.deaf = tc.deaf
					stopA := s.replica("a")
					time.Sleep(700 * time.Millisecond)
					stopB, stopC := s.replica("b"), s.replica("c")
					time.Sleep(killed)
					renewed := s.lease().Spec.RenewTime.Time
					s.setDown("a", true)
					_ = stopA()
					time.Sleep(time.Until(renewed.Add(15*time.Second - time.Millisecond)))
					if got := s.story(); got != "a leads, a ends" {
						t.Errorf("killed after %v: too early: %s", killed, got)
					}
					time.Sleep(time.Millisecond + tc.late)
					if got := s.story(); got != "a leads, a ends, b leads" && got != "a leads, a ends, c leads" {
						t.Errorf("killed after %v: %s", killed, got)
					}
					_, _ = stopB(), stopC()
				})
			}
		})
	}
}

// A Lease that is deleted is created again at once.
func TestTheLeaseIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.foreign(metav1.NowMicro())
		stop := s.replica("a")
		time.Sleep(time.Second)
		if err := client.For[*coordinationv1.Lease](s.api.Client(t)).In("kube-system").Delete(t.Context(), "job", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		if got := s.story(); got != "a leads" {
			t.Errorf("story: %q", got)
		}
		_ = stop()
	})
}

// A holder whose clock is hours behind renews: its lease looks expired by the
// timestamps in it.
func TestClocksNeedNotAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		leases := client.For[*coordinationv1.Lease](s.api.Client(t)).In("kube-system")
		past := metav1.NewMicroTime(time.Now().Add(-5 * time.Hour))
		lease := s.foreign(past)
		var err error
		stop := s.replica("a")
		for range 10 {
			time.Sleep(5 * time.Second)
			next := metav1.NewMicroTime(lease.Spec.RenewTime.Add(5 * time.Second))
			lease.Spec.RenewTime = &next
			if lease, err = leases.Update(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.story(); got != "" {
			t.Errorf("took the lease of a holder that renews: %s", got)
		}
		time.Sleep(20 * time.Second)
		if got := s.story(); got != "a leads" {
			t.Errorf("the holder is silent: %q", got)
		}
		_ = stop()
	})
}

func TestLeadsErrorIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		api := clienttest.New()
		err := leaderelection.Run(t.Context(), leaderelection.Config{Client: api.Client(t), Name: "job", Identity: "a"},
			func(context.Context) error { return broken })
		if !errors.Is(err, broken) {
			t.Error(err)
		}
	})
}
