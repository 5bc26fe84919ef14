package daemon

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"podium/pkg/client"
	"podium/pkg/client/revocation"
)

// Secure is the HTTPS port of a daemon that serves only its own health, metrics and
// profiles.
type Secure struct {
	BindAddress string
	Port        int // 0: none
	Profiling   bool
	Serving
	Access
}

// AddFlags registers the flags; port is the default port.
func (s *Secure) AddFlags(fs *pflag.FlagSet, port int) {
	fs.StringVar(&s.BindAddress, "bind-address", "0.0.0.0", "IP address of health and metrics")
	fs.IntVar(&s.Port, "secure-port", port, "port of health and metrics (HTTPS); 0 turns them off")
	fs.BoolVar(&s.Profiling, "profiling", true, "serve profiles of this process at /debug/pprof to authorized users")
	s.AddClientCA(fs, "file with the CA of client certificates; without it only bearer tokens are accepted")
	s.Serving.AddFlags(fs)
	s.Access.AddFlags(fs)
}

// Serve serves until ctx ends. It returns nil at once if Port is 0.
func (s *Secure) Serve(ctx context.Context, pages *http.ServeMux, c *client.Client, log *slog.Logger) error {
	if s.Port == 0 {
		return nil
	}
	cfg, err := s.TLS()
	if err != nil {
		return err
	}
	if s.Profiling {
		pages.Handle(ProfilesPath, Profiles())
	}
	serving := ServeConfig{Address: net.JoinHostPort(s.BindAddress, strconv.Itoa(s.Port)), TLS: cfg, Log: log}
	if s.ClientCA == "" { // client certificates are not accepted
		serving.Handler = s.Guard(pages, c, nil, log)
		return Serve(ctx, serving)
	}
	revoked, err := revocation.NewFollower(revocation.Config{Client: c, ClientCA: s.ClientCA, Log: log})
	if err != nil {
		return err
	}
	serving.Connections, serving.Handler = &revocation.Connections{}, s.Guard(pages, c, revoked.Present, log)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return revoked.Run(ctx) })
	g.Go(func() error { serving.Connections.Run(ctx, revoked.List); return nil })
	g.Go(func() error { return Serve(ctx, serving) })
	return g.Wait()
}

// ProfilesPath is the path of Profiles.
const ProfilesPath = "/debug/pprof/"

// Profiles serves profiles of this process below ProfilesPath; see net/http/pprof.
func Profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(ProfilesPath, pprof.Index)
	mux.HandleFunc(ProfilesPath+"cmdline", pprof.Cmdline)
	mux.HandleFunc(ProfilesPath+"profile", pprof.Profile)
	mux.HandleFunc(ProfilesPath+"symbol", pprof.Symbol)
	mux.HandleFunc(ProfilesPath+"trace", pprof.Trace)
	return mux
}
