package apiserver_test

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
	"podium/pkg/storage"
	"podium/pkg/storage/memory"
)

// Servers of one store find each other regardless of clock skew. One that shuts
// down is removed at once, one that crashes after its Lease has expired.
func TestServersTellOfEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		first, stopFirst := oneOf(t, store, "a", "192.0.2.1:6443", 0)
		_, stopSecond := oneOf(t, store, "b", "192.0.2.2:6443", -time.Hour) // its clock is wrong
		told := func() string {
			t.Helper()
			obj, err := first.Backend().Get(t.Context(), discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), "default", "kubernetes")
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for _, e := range obj.(*discoveryv1.EndpointSlice).Endpoints {
				out = append(out, e.Addresses...)
			}
			return strings.Join(out, " ")
		}
		expect := func(why, want string) {
			t.Helper()
			if diff := cmp.Diff(want, told()); diff != "" {
				t.Errorf("%s: %s", why, diff)
			}
		}
		time.Sleep(15 * time.Second)
		expect("both are there", "192.0.2.1 192.0.2.2")
		time.Sleep(time.Hour)
		expect("both are there for long", "192.0.2.1 192.0.2.2")
		stopSecond()
		expect("the second has left", "192.0.2.1")

		_, stopThird := oneOf(t, store, "c", "192.0.2.3:6443", time.Hour)
		time.Sleep(15 * time.Second)
		expect("the third has come", "192.0.2.1 192.0.2.3")
		leases := coordinationv1.SchemeGroupVersion.WithResource("leases")
		lease, err := first.Backend().Get(t.Context(), leases, "kube-system", "apiserver-c")
		if err != nil {
			t.Fatal(err)
		}
		stopThird()
		lease.SetResourceVersion("")
		lease.SetUID("")
		if _, err := first.Backend().Create(t.Context(), leases, lease); err != nil {
			t.Fatal(err) // as if it had crashed
		}
		time.Sleep(15 * time.Second)
		expect("the third may only be slow", "192.0.2.1 192.0.2.3")
		time.Sleep(30 * time.Second)
		expect("the third is lost", "192.0.2.1")
		stopFirst()
		expect("the last stays", "192.0.2.1")
	})
}

// oneOf runs a server whose clock is off by skew.
func oneOf(t *testing.T, store storage.Store, name, address string, skew time.Duration) (*apiserver.Server, func()) {
	t.Helper()
	s, cidr := scheme.New(), netip.MustParsePrefix("10.96.0.0/16")
	now := func() time.Time { return time.Now().Add(skew) }
	server, err := apiserver.New(apiserver.Config{
		Scheme: s, Store: store, Log: slog.New(slog.DiscardHandler), Authenticator: asAdmin(), CompactEvery: -1, Now: now,
		Kinds:       registry.Kinds(s, registry.Config{Store: store, ServiceCIDR: cidr, NodePorts: registry.PortRange{First: 1, Last: 2}, Now: now}),
		ServiceCIDR: cidr, Advertise: netip.MustParseAddrPort(address), Identity: name,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	return server, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
