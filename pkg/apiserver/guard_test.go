package apiserver

import (
	"testing"
	"testing/synctest"
	"time"
)

// A guard cuts a write that takes as long as its limit, and no other: however many come
// before it, and whenever the timer of an earlier one fires.
func TestGuard(t *testing.T) {
	const limit = time.Minute
	for name, tc := range map[string]struct {
		writes, pauses []time.Duration
		cut            time.Duration // after the begin of the last write; 0: not
	}{
		"Short":         {[]time.Duration{time.Second, limit - 1, time.Second}, []time.Duration{0, 0, 0}, 0},
		"Idle":          {[]time.Duration{0, 0, limit - 1}, []time.Duration{limit, 10 * limit, 0}, 0},
		"Long":          {[]time.Duration{2 * limit}, []time.Duration{0}, limit},
		"LongAfterMany": {[]time.Duration{limit - 1, limit - 1, 2 * limit}, []time.Duration{0, 1, 0}, limit},
		"LongAfterIdle": {[]time.Duration{time.Second, 2 * limit}, []time.Duration{3 * limit / 2, 0}, limit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var began, cut time.Time
				g := newGuard(limit, func() { cut = time.Now() })
				for i, d := range tc.writes {
					began = time.Now()
					g.enter()
					time.Sleep(d)
					synctest.Wait()
					g.leave()
					time.Sleep(tc.pauses[i])
				}
				if cut.IsZero() != (tc.cut == 0) || tc.cut > 0 && cut.Sub(began) != tc.cut {
					t.Errorf("cut at %v, want %v", cut.Sub(began), tc.cut)
				}
			})
		})
	}
}
