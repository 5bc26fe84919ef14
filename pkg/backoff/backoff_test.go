package backoff

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDelays(t *testing.T) {
	const s = time.Second
	for name, tt := range map[string]struct {
		b    Backoff
		want []time.Duration
	}{
		"doubles up to the longest": {Backoff{Initial: s, Max: 5 * s}, []time.Duration{s, 2 * s, 4 * s, 5 * s, 5 * s}},
		"grows without limit":       {Backoff{Initial: s}, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s}},
		"grows by its factor":       {Backoff{Initial: 2 * s, Max: 4 * s, Factor: 1.5}, []time.Duration{2 * s, 3 * s, 4 * s}},
		"starts below the longest":  {Backoff{Initial: 9 * s, Max: 5 * s}, []time.Duration{5 * s, 5 * s}},
		"jitter comes on top and does not add up": {
			Backoff{Initial: s, Max: 2 * s, Jitter: 0.2, Rand: func() float64 { return 0.5 }},
			[]time.Duration{1100 * time.Millisecond, 2200 * time.Millisecond, 2200 * time.Millisecond},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for round := range 2 {
				var got []time.Duration
				for range tt.want {
					got = append(got, tt.b.Next())
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("round %d: -want +got\n%s", round, diff)
				}
				tt.b.Reset()
			}
		})
	}
}

func TestJitterStaysInItsRange(t *testing.T) {
	for range 1000 {
		b := Backoff{Initial: time.Second, Jitter: 0.1}
		if d := b.Next(); d < time.Second || d > 1100*time.Millisecond {
			t.Fatalf("delay %v", d)
		}
	}
}

func TestFailingAndAtMax(t *testing.T) {
	b := Backoff{Initial: time.Second, Max: 2 * time.Second}
	type state struct{ Failing, AtMax bool }
	got := []state{{b.Failing(), b.AtMax()}}
	for range 2 {
		b.Next()
		got = append(got, state{b.Failing(), b.AtMax()})
	}
	b.Reset()
	got = append(got, state{b.Failing(), b.AtMax()})
	if diff := cmp.Diff([]state{{}, {Failing: true}, {true, true}, {}}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestWaitsInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		b := Backoff{Initial: time.Hour, Max: 3 * time.Hour}
		for range 3 {
			if err := b.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := time.Since(began); got != 6*time.Hour {
			t.Errorf("waited %v", got)
		}
	})
}

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := Sleep(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
		if err := Sleep(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a sleep of no time after the context's end: %v", err)
		}
	})
}

func TestSleepOrWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{}, 1)
		time.AfterFunc(time.Minute, func() { wake <- struct{}{} })
		began := time.Now()
		if err := SleepOrWake(t.Context(), time.Hour, wake); err != nil || time.Since(began) != time.Minute {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
		if err := SleepOrWake(t.Context(), -1, nil); err != nil {
			t.Error(err)
		}
	})
}
