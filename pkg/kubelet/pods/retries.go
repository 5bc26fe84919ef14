package pods

import (
	"time"

	"podium/pkg/backoff"
)

// retries are the back-offs of failed actions by key. It is not safe for concurrent
// use.
type retries map[string]*retry

type retry struct {
	backoff.Backoff
	until time.Time
}

func (r retries) due(key string, now time.Time) bool {
	t := r[key]
	return t == nil || !now.Before(t.until)
}

// fail counts a failure and returns when the action is due again. The delays grow
// from first to most.
func (r retries) fail(key string, now time.Time, first, most time.Duration) time.Time {
	t := r[key]
	if t == nil {
		t = &retry{Backoff: backoff.Backoff{Initial: first, Max: most}}
		r[key] = t
	}
	t.until = now.Add(t.Next())
	return t.until
}

func (r retries) ok(key string) { delete(r, key) }

// next returns the earliest time after now at which a retry is due; zero: never.
func (r retries) next(now time.Time) time.Time {
	var first time.Time
	for _, t := range r {
		if t.until.After(now) && (first.IsZero() || t.until.Before(first)) {
			first = t.until
		}
	}
	return first
}
