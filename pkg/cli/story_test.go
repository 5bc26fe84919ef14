package cli_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	docs "podium/api/openapi"
	"podium/pkg/apiserver"
	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/openapi"
	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/request"
	"podium/pkg/cli"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/scheme"
	"podium/pkg/storage/memory"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"podium": func() {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		code := cli.Main(ctx, cli.IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, os.Args[1:])
		stop()
		os.Exit(code)
	}})
}

// TestCommands runs the scripts in testdata, each with the real command and an
// API server on the memory store.
func TestCommands(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: os.Getenv("UPDATE_STORIES") != "",
		Setup: func(env *testscript.Env) error {
			address, stop := serve(t)
			env.Defer(stop)
			path := filepath.Join(env.WorkDir, "kubeconfig")
			cfg := kubeconfig.New("story", kubeconfig.Cluster{Server: "http://" + address}, kubeconfig.User{Token: "secret"})
			env.Setenv("KUBECONFIG", path)
			env.Setenv("SERVER", "http://"+address)
			return cfg.Write(path, 0o600)
		},
	})
}

// serve runs an API server that gives every user full access.
func serve(t *testing.T) (address string, stop func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, store := scheme.New(), memory.New()
	cidr := netip.MustParsePrefix("10.96.0.0/16")
	tokens := storyTokens(t)
	access, err := apiserver.NewAccess(apiserver.AccessConfig{})
	if err != nil {
		t.Fatal(err)
	}
	server, err := apiserver.New(apiserver.Config{
		Access: access,
		Scheme: s, Store: store, Log: slog.New(slog.DiscardHandler), Listener: l,
		Authenticator: authn.Func(func(*http.Request) (*request.User, error) {
			return &request.User{Name: "admin", Groups: []string{authn.Masters, authn.Authenticated}}, nil
		}),
		Kinds: registry.Kinds(s, registry.Config{
			Store: store, ServiceCIDR: cidr, NodePorts: registry.PortRange{First: 30000, Last: 32767}, Now: time.Now,
			Tokens: tokens, TokenAudiences: tokens.Audiences(), Identify: tokens, Access: access,
			Components: []registry.Component{{Name: "scheduler", Probe: func(context.Context) (string, error) { return "ok", nil }}},
		}),
		OpenAPI:      &openapi.Documents{V2: docs.V2, V3: docs.V3, Paths: docs.Paths},
		ServiceCIDR:  cidr,
		Advertise:    netip.MustParseAddrPort("192.0.2.1:6443"),
		CompactEvery: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	for ready := false; !ready; { // wait until the server has created the initial namespaces
		resp, err := http.Get("http://" + l.Addr().String() + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		ready = resp.StatusCode == http.StatusOK
	}
	return l.Addr().String(), func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	}
}

// storyTokens returns a token issuer with a new key.
func storyTokens(t *testing.T) *authn.Tokens {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := authn.NewKeySet(key)
	if err != nil {
		t.Fatal(err)
	}
	return authn.NewTokens(authn.TokenConfig{Issuers: []string{"https://story"}, Keys: func() *authn.KeySet { return keys }})
}
