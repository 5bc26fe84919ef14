package eventratelimit

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/request"
)

func event(namespace, user, object string) *admission.Attributes {
	return &admission.Attributes{
		Operation: admission.Create, Namespace: namespace, User: &request.User{Name: user},
		Object: &corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: object}},
	}
}

func TestLimits(t *testing.T) {
	now := time.Now()
	rule := New(admission.Host{Now: func() time.Time { return now }}, Config{Limits: []Limit{{Type: Namespace, QPS: 1, Burst: 2, CacheSize: 2}, {Type: User, QPS: 1, Burst: 3, CacheSize: 10}}}).Validate
	dry := event("a", "mallory", "p")
	dry.DryRun = true
	server := event("a", "", "p")
	server.User = nil
	for i, tc := range []struct {
		reason string
		event  *admission.Attributes
		wait   time.Duration
		want   string // the error text
	}{
		{"the burst", event("a", "mallory", "p"), 0, ""},
		{"the burst", event("a", "mallory", "p"), 0, ""},
		{"the namespace has no token", event("a", "mallory", "p"), 0, "limit reached on type Namespace for key a"},
		{"another namespace, but the user has none", event("b", "mallory", "p"), 0, "limit reached on type User for key mallory"},
		{"neither has", event("a", "mallory", "p"), 0, "[limit reached on type Namespace for key a, limit reached on type User for key mallory]"},
		{"another user", event("b", "alice", "p"), 0, ""},
		{"nothing is written", dry, 0, ""},
		{"the server itself", server, 0, ""},
		{"a token has come", event("a", "mallory", "p"), time.Second, ""},
		{"a third namespace takes the place of b", event("c", "bob", "p"), 0, ""},
		{"b has tokens again", event("b", "bob", "p"), 0, ""},
		{"b has its burst", event("b", "bob", "p"), 0, ""},
	} {
		now = now.Add(tc.wait)
		err := rule(t.Context(), tc.event)
		if (err == nil) != (tc.want == "") || err != nil && (err.Error() != tc.want || !apierrors.IsTooManyRequests(err)) {
			t.Errorf("%d: %v, want %q; %s", i, err, tc.want, tc.reason)
		}
	}
}

func TestSourceAndObject(t *testing.T) {
	rule := New(admission.Host{Now: time.Now}, Config{Limits: []Limit{{Type: SourceAndObject, QPS: 1, Burst: 1, CacheSize: 10}, {Type: Server, QPS: 1, Burst: 2, CacheSize: 1}}}).Validate
	if err := rule(t.Context(), event("a", "x", "p")); err != nil {
		t.Error(err)
	}
	if err := rule(t.Context(), event("a", "x", "q")); err != nil {
		t.Error(err)
	}
	if err := rule(t.Context(), event("a", "x", "p")); err == nil || !strings.Contains(err.Error(), "type SourceAndObject for key Podp") {
		t.Error(err)
	}
}

func TestParseConfig(t *testing.T) {
	const head = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\n"
	c, err := ParseConfig([]byte(head + "limits:\n- {type: Namespace, qps: 50, burst: 100, cacheSize: 2000}\n- {type: User, qps: 10, burst: 50}\n"))
	if err != nil || len(c.Limits) != 2 || c.Limits[0] != (Limit{Namespace, 50, 100, 2000}) || c.Limits[1].CacheSize != defaultCacheSize {
		t.Errorf("%+v %v", c, err)
	}
	_, err = ParseConfig([]byte(head + "limits:\n- {type: Planet, qps: 0, burst: -1, cacheSize: -1}\n"))
	for _, want := range []string{"type: Unsupported", "qps", "burst", "cacheSize"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v says nothing of %s", err, want)
		}
	}
	for _, bad := range []string{head, head + "limit: []\n", "kind: Other\n", "{"} {
		if _, err := ParseConfig([]byte(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte("apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\nlimits:\n- {type: Server, qps: 1, burst: 1}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig(data)
		if err == nil && New(admission.Host{Now: time.Now}, c).Validate(t.Context(), event("a", "x", "p")) != nil {
			t.Error("the first event is refused")
		}
	})
}
