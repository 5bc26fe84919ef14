package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// start runs a loop in the bubble until the test ends. It records the reconciled keys and
// when, in virtual milliseconds.
func start(t *testing.T, cfg Config) (*Loop, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var log []string
	began := time.Now()
	inner := cfg.Reconcile
	cfg.Name, cfg.Log, cfg.Metrics = "test", slog.New(slog.DiscardHandler), NewMetrics(prometheus.NewRegistry())
	cfg.Reconcile = func(ctx context.Context, key Key) (Result, error) {
		mu.Lock()
		log = append(log, fmt.Sprintf("%d %s", time.Since(began).Milliseconds(), key.Name))
		mu.Unlock()
		return inner(ctx, key)
	}
	l := New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	return l, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), log...)
	}
}

func key(name string) Key { return Key{Name: name} }

func TestLoop(t *testing.T) {
	ok := func(context.Context, Key) (Result, error) { return Done, nil }
	tests := map[string]struct {
		reason string
		cfg    Config
		do     func(l *Loop)
		want   []string
	}{
		"Dedup": {
			reason: "a key woken many times before a worker is free is reconciled once",
			cfg:    Config{Workers: 1, Reconcile: func(context.Context, Key) (Result, error) { time.Sleep(time.Second); return Done, nil }},
			do: func(l *Loop) {
				l.Wake(key("a"))
				synctest.Wait()
				l.Wake(key("b"), key("b"))
				l.Wake(key("b"))
			},
			want: []string{"0 a", "1000 b"},
		},
		"WokenWhileRunning": {
			reason: "a change during a reconcile may have come too late for it: once more, after it",
			cfg:    Config{Workers: 4, Reconcile: func(context.Context, Key) (Result, error) { time.Sleep(time.Second); return Done, nil }},
			do: func(l *Loop) {
				l.Wake(key("a"))
				synctest.Wait()
				l.Wake(key("a"))
				l.Wake(key("a"))
			},
			want: []string{"0 a", "1000 a"},
		},
		"BackOff": {
			reason: "each failure waits twice as long as the one before, up to the maximum",
			cfg: Config{MaxBackoff: 30 * time.Millisecond, Reconcile: func(context.Context, Key) (Result, error) {
				return Done, errors.New("no")
			}},
			do:   func(l *Loop) { l.Wake(key("a")); time.Sleep(100 * time.Millisecond) },
			want: []string{"0 a", "5 a", "15 a", "35 a", "65 a", "95 a"},
		},
		"Panic": {
			reason: "a panic is a failure of that key and of nothing else",
			cfg: Config{MinBackoff: time.Hour, MaxBackoff: time.Hour, Reconcile: func(_ context.Context, k Key) (Result, error) {
				if k.Name == "bad" {
					panic("bad")
				}
				return Done, nil
			}},
			do:   func(l *Loop) { l.Wake(key("bad")); synctest.Wait(); l.Wake(key("good")) },
			want: []string{"0 bad", "0 good"},
		},
		"After": {
			reason: "a reconcile may ask for the next one, and a wake before that replaces it",
			cfg: Config{Reconcile: func(context.Context, Key) (Result, error) {
				return After(time.Second), nil
			}},
			do: func(l *Loop) {
				l.Wake(key("a"))
				time.Sleep(1500 * time.Millisecond)
				l.Wake(key("a"))
				time.Sleep(1200 * time.Millisecond)
			},
			want: []string{"0 a", "1000 a", "1500 a", "2500 a"},
		},
		"SoonerWins": {
			reason: "of two delays the shorter counts",
			cfg:    Config{Reconcile: ok},
			do: func(l *Loop) {
				l.WakeAfter(key("a"), time.Second)
				l.WakeAfter(key("a"), 100*time.Millisecond)
				l.WakeAfter(key("a"), 500*time.Millisecond)
				time.Sleep(2 * time.Second)
			},
			want: []string{"100 a"},
		},
		"Pace": {
			reason: "the first change is handled at once, those that follow closely together",
			cfg:    Config{Pace: 50 * time.Millisecond, Reconcile: ok},
			do: func(l *Loop) {
				for range 10 {
					l.Wake(key("a"))
					time.Sleep(10 * time.Millisecond)
				}
				time.Sleep(time.Second)
				l.Wake(key("a"))
			},
			want: []string{"0 a", "50 a", "100 a", "1100 a"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, log := start(t, tc.cfg)
				tc.do(l)
				synctest.Wait()
				time.Sleep(time.Millisecond)
				if name == "Dedup" || name == "WokenWhileRunning" {
					time.Sleep(5 * time.Second)
				}
				if diff := cmp.Diff(tc.want, log()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

type view struct{ at atomic.Int64 }

func (v *view) Revision() string { return strconv.FormatInt(v.at.Load(), 10) }

func TestGuardWaitsForOwnWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &view{}
		var gone atomic.Bool
		l, log := start(t, Config{Reconcile: func(context.Context, Key) (Result, error) { return Done, nil }})
		l.Wrote(key("a"), v, "7")
		l.Wait(key("a"), gone.Load)
		l.Wake(key("a"), key("b"))
		time.Sleep(10*time.Second + 500*time.Millisecond)
		v.at.Store(7)
		l.Wake(key("a"))
		time.Sleep(10*time.Second + 50*time.Millisecond) // not when the loop looks by itself
		gone.Store(true)
		l.Wake(key("a"))
		synctest.Wait()
		if diff := cmp.Diff([]string{"0 b", "20550 a"}, log()); diff != "" {
			t.Errorf("b wrote nothing and does not wait; a waits for both writes (-want +got):\n%s", diff)
		}
	})
}

func TestGuardIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, log := start(t, Config{StaleLimit: time.Minute, Reconcile: func(context.Context, Key) (Result, error) { return Done, nil }})
		l.Wrote(key("a"), &view{}, "7")
		l.Wake(key("a"))
		time.Sleep(2 * time.Minute)
		if got := log(); len(got) != 1 {
			t.Errorf("reconciled %v, want once after a minute", got)
		}
	})
}

// TestGuardForgetsKeysThatNothingWakes: the memory of the guard is bounded by the writes that
// the views do not show, not by the objects that were ever written.
func TestGuardForgetsKeysThatNothingWakes(t *testing.T) {
	v, g := &view{}, newGuard()
	v.at.Store(7)
	write := func(prefix, version string) {
		for i := range 1000 {
			k := key(prefix + strconv.Itoa(i))
			g.wrote(k, v, version)
			g.wait(k, func() bool { return true })
		}
	}
	write("old-", "7")
	if n := len(g.pending); n > sweepFrom {
		t.Errorf("the guard still has the writes of %d keys", n)
	}
	write("new-", "8")
	for i := range 1000 {
		if _, stale, _ := g.stale(key("new-"+strconv.Itoa(i)), time.Minute); !stale {
			t.Fatalf("the guard has forgotten write %d, which no view shows", i)
		}
	}
}

func TestMetricsShowReconcilesThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		m := NewMetrics(r)
		show := func() string {
			families, err := r.Gather()
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for _, f := range families {
				for _, s := range f.Metric {
					if strings.HasSuffix(f.GetName(), "_processor_seconds") || strings.HasSuffix(f.GetName(), "_unfinished_work_seconds") {
						out = append(out, fmt.Sprint(s.Label[0].GetValue(), " ", s.Gauge.GetValue()))
					}
				}
			}
			return strings.Join(out, ", ")
		}
		l := New(Config{Name: "slow", Log: slog.New(slog.DiscardHandler), Metrics: m, Reconcile: func(ctx context.Context, _ Key) (Result, error) {
			time.Sleep(15 * time.Second)
			return Done, nil
		}})
		New(Config{Name: "idle", Log: slog.New(slog.DiscardHandler), Metrics: m})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		l.Wake(key("a"))
		time.Sleep(4 * time.Second)
		l.Wake(key("b"))
		time.Sleep(6 * time.Second)
		if got, want := show(), "idle 0, slow 10, idle 0, slow 16"; got != want {
			t.Errorf("after 10 s: %s, want %s", got, want)
		}
		time.Sleep(time.Minute)
		if got, want := show(), "idle 0, slow 0, idle 0, slow 0"; got != want {
			t.Errorf("after the reconciles: %s, want %s", got, want)
		}
		cancel()
		<-done
	})
}

func TestOneWorkerPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var busy [4]atomic.Int32
		var total atomic.Int32
		l, _ := start(t, Config{Workers: 8, Reconcile: func(_ context.Context, k Key) (Result, error) {
			i := k.Name[0] - 'a'
			if busy[i].Add(1) > 1 {
				t.Error("two workers on one key")
			}
			time.Sleep(time.Millisecond)
			busy[i].Add(-1)
			if total.Add(1)%3 == 0 {
				return Done, errors.New("some fail")
			}
			return Done, nil
		}})
		for range 200 {
			for _, k := range "abcd" {
				l.Wake(key(string(k)))
			}
			time.Sleep(300 * time.Microsecond)
		}
		time.Sleep(time.Minute)
		if total.Load() < 100 {
			t.Errorf("%d reconciles", total.Load())
		}
	})
}

func TestSlowStart(t *testing.T) {
	calls := atomic.Int32{}
	err := SlowStart(t.Context(), 500, func(context.Context, int) error {
		calls.Add(1)
		return errors.New("refused")
	})
	if calls.Load() != 1 || err == nil || err.Error() != "refused" {
		t.Errorf("%d calls, %v: a template that is refused costs one request", calls.Load(), err)
	}
	calls.Store(0)
	if err := SlowStart(t.Context(), 500, func(context.Context, int) error { calls.Add(1); return nil }); err != nil || calls.Load() != 500 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
}

func BenchmarkWake(b *testing.B) {
	m := NewMetrics(prometheus.NewRegistry()).of("bench")
	q := newQueue(0, m)
	keys := make([]Key, 1000)
	for i := range keys {
		keys[i] = key(strconv.Itoa(i))
	}
	for b.Loop() {
		for _, k := range keys {
			q.add(k)
		}
		for range keys {
			it, _ := q.next()
			q.done(it, 0, 0)
		}
	}
}
