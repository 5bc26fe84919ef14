package apiserver_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
	"podium/pkg/storage/memory"
)

func TestBootstrapErrorIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := scheme.New(), memory.New()
		cidr := netip.MustParsePrefix("10.96.0.0/16")
		var log bytes.Buffer
		server, err := apiserver.New(apiserver.Config{
			Scheme: s, Store: store, Log: slog.New(slog.NewTextHandler(&log, nil)), Authenticator: asAdmin(), CompactEvery: -1,
			Kinds:       registry.Kinds(s, registry.Config{Store: store, ServiceCIDR: cidr, NodePorts: registry.PortRange{First: 1, Last: 2}, Now: time.Now}),
			ServiceCIDR: cidr, Advertise: netip.MustParseAddrPort("127.0.0.1:6443"),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- server.Run(ctx) }()
		time.Sleep(time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "may not be in the loopback range"); n != 1 {
			t.Errorf("told %d times:\n%s", n, &log)
		}
	})
}
