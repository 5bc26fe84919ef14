package ttlcache

import (
	"testing"
	"time"
)

func TestCache(t *testing.T) {
	now := time.Unix(1000, 0)
	c := New[int, string](3, func() time.Time { return now })
	has := func(what string, question int, want string) {
		t.Helper()
		if got, ok := c.Get(question); got != want || ok != (want != "") {
			t.Errorf("%s: %d is %q, %v, want %q", what, question, got, ok, want)
		}
	}
	c.Put(1, "one", time.Minute)
	c.Put(2, "two", time.Second)
	c.Put(3, "three", 0)
	has("remembered", 1, "one")
	has("for no time", 3, "")
	now = now.Add(time.Second)
	has("too old", 2, "")
	has("not yet", 1, "one")
	c.Put(1, "another", 2*time.Minute)
	now = now.Add(time.Minute)
	has("said anew", 1, "another")
	for i := 2; i < 4; i++ {
		c.Put(i, "more", time.Minute)
	}
	has("used last", 1, "another")
	c.Put(4, "more", time.Minute)
	has("used longest ago", 2, "")
	has("used since", 1, "another")
	for i := range 100 {
		c.Put(i, "many", time.Minute)
	}
	if len(c.entries) != 3 || c.order.Len() != 3 {
		t.Errorf("%d answers in an order of %d, though 3 are the most", len(c.entries), c.order.Len())
	}
}
