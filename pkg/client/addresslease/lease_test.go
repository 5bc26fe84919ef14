package addresslease

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

var web = types.NamespacedName{Namespace: "shop", Name: "web"}

func TestLeaseRoundTrip(t *testing.T) {
	names := map[string]string{}
	for _, text := range []string{"10.0.0.240", "10.0.2.40", "2001:db8::1", "2001:db8::1:0", "::ffff:a00:f0"} {
		a := netip.MustParseAddr(text)
		l := New(a, web)
		if other := names[l.Name]; other != "" || !strings.HasPrefix(l.Name, Prefix) || len(validation.IsDNS1123Subdomain(l.Name)) > 0 {
			t.Errorf("%s: name %s (also of %q)", text, l.Name, other)
		}
		names[l.Name] = text
		got, err := Parse(l)
		if want := (Claim{Address: a, Service: web}); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		Hold(l, "node-1", Duration)
		Close(l)
		if got, err := Parse(l); err != nil || got.Holder != "node-1" || !got.Closing {
			t.Errorf("%s, held and closing: %+v, %v", text, got, err)
		}
	}
}

func TestParseInvalidLease(t *testing.T) {
	for name, spoil := range map[string]func(*coordinationv1.Lease){
		"no address":               func(l *coordinationv1.Lease) { delete(l.Annotations, annotationAddress) },
		"an address not its own":   func(l *coordinationv1.Lease) { l.Annotations[annotationAddress] = "10.0.0.2" },
		"a service without a name": func(l *coordinationv1.Lease) { l.Annotations[annotationService] = "shop/" },
		"no service":               func(l *coordinationv1.Lease) { l.Annotations = map[string]string{annotationAddress: "10.0.0.1"} },
	} {
		l := New(netip.MustParseAddr("10.0.0.1"), web)
		spoil(l)
		if c, err := Parse(l); err == nil {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func TestTransitionsAreCounted(t *testing.T) {
	l := New(netip.MustParseAddr("10.0.0.1"), web)
	for _, node := range []string{"a", "a", "b", "a"} {
		Hold(l, node, Duration)
	}
	Release(l)
	Hold(l, "a", Duration)
	if *l.Spec.LeaseTransitions != 4 {
		t.Errorf("%d transitions: a, b, a, and a again after a release", *l.Spec.LeaseTransitions)
	}
}

func TestOthersWaitLongerThanTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		version := func(rv, holder string) *coordinationv1.Lease {
			l := New(netip.MustParseAddr("10.0.0.1"), web)
			l.ResourceVersion = rv
			if holder != "" {
				Hold(l, holder, Duration)
			}
			return l
		}
		var w Watch
		began := time.Now()
		w.See(version("9", ""))
		if w.Free().After(began) {
			t.Error("nobody holds it: it is free at once")
		}
		w.See(version("10", "a"))
		time.Sleep(5 * time.Second)
		w.See(version("10", "a")) // again: nothing new
		w.See(version("9", ""))   // from a cache that is behind
		if free := w.Free().Sub(began); free <= Duration {
			t.Errorf("free after %v: the holder may still announce", free)
		}
		w.See(version("11", "a"))
		if free := w.Free().Sub(began); free <= 5*time.Second+Duration {
			t.Errorf("renewed after 5 s, free after %v", free)
		}
	})
}
