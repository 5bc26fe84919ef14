package security

import (
	"testing"
)

func TestStalledBodies(t *testing.T) {
	stalls(t, 65535, "POST", func(a *tenant) string { return a.path("configmaps") })
}

func TestUnreadAnswers(t *testing.T) {
	stalls(t, 0, "GET", func(*tenant) string { return "/openapi/v2" })
}

// stalls opens more requests than there are seats, none of which completes, and checks that other
// users are not affected.
func stalls(t *testing.T, window uint32, method string, path func(*tenant) string) {
	a, b := newTenant(t), newTenant(t)
	for range 3 {
		c, err := a.dial(window)
		check(t, err)
		defer c.conn.Close()
		check(t, c.open(240, method, path(a)))
	}
	for range 20 {
		unharmed(t, b)
		b.wants(201, "POST", b.path("configmaps"), jsonType, `{"metadata":{"generateName":"x-"}}`)
	}
}
