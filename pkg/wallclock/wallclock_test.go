package wallclock_test

import (
	"testing"
	"time"

	"podium/pkg/wallclock"
)

// The age of what was recorded is that by the clock; it is never negative.
func TestAnchor(t *testing.T) {
	now := time.Now()
	for name, tc := range map[string]struct{ age, want time.Duration }{
		"Past":   {time.Minute, time.Minute},
		"Now":    {0, 0},
		"Future": {-time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			recorded := now.Add(-tc.age).Round(0) // without a monotonic reading, as in an API object
			if got := now.Sub(wallclock.Anchor(recorded, now)); got != tc.want {
				t.Errorf("recorded %v ago, it is %v old, want %v", tc.age, got, tc.want)
			}
		})
	}
}
