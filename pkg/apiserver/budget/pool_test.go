package budget

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const mb = 1 << 20

func TestLargeRequestsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(100*mb, Small)
		var all sync.WaitGroup
		var most, now atomic.Int64
		for i := range 40 {
			all.Go(func() {
				release, err := m.Acquire(t.Context(), fmt.Sprint(i%8), 30*mb)
				if err != nil {
					t.Error(err)
					return
				}
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(time.Second) // synctest time: returns once all others wait
				now.Add(-1)
				release()
			})
		}
		all.Wait()
		if most.Load() != 3 || m.Used() != 0 || len(m.byUser) != 0 {
			t.Errorf("%d at a time, %d bytes left, %v", most.Load(), m.Used(), m.byUser)
		}
	})
}

func TestOneUserHasHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(100*mb, Small)
		first, err := m.Acquire(t.Context(), "mallory", 400*mb)
		if err != nil {
			t.Fatal(err)
		}
		second := make(chan func())
		go func() {
			release, _ := m.Acquire(t.Context(), "mallory", 10*mb)
			second <- release
		}()
		synctest.Wait()
		other, err := m.Acquire(t.Context(), "alice", 50*mb)
		if err != nil {
			t.Fatal(err)
		}
		small, err := m.Acquire(t.Context(), "mallory", Small)
		if err != nil {
			t.Fatal(err)
		}
		small()
		select {
		case <-second:
			t.Error("a user has more than half")
		default:
		}
		first()
		(<-second)()
		other()
		if m.Used() != 0 {
			t.Errorf("%d bytes are left", m.Used())
		}
	})
}

func TestWaitEndsWithTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(100*mb, Small)
		release, err := m.Acquire(t.Context(), "a", 50*mb)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := m.Acquire(ctx, "a", 50*mb)
			ended <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || len(m.waiting) != 0 {
			t.Errorf("%v, %d wait", err, len(m.waiting))
		}
		var all sync.WaitGroup
		for range maxWaiting {
			all.Go(func() {
				if next, err := m.Acquire(t.Context(), "a", 50*mb); err == nil {
					next()
				}
			})
		}
		synctest.Wait()
		if _, err := m.Acquire(t.Context(), "a", 50*mb); !apierrors.IsTooManyRequests(err) {
			t.Errorf("one that would be too many to wait: %v", err)
		}
		release()
		all.Wait()
	})
}
