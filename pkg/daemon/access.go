package daemon

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"podium/pkg/client"
	"podium/pkg/client/access"
	"podium/pkg/client/revocation"
)

// Access configures who may read a daemon's pages. The API server decides.
type Access struct {
	// Open are the paths that need no credential; a trailing * matches any suffix.
	Open                        []string
	TokenTTL, AllowTTL, DenyTTL time.Duration
}

// cacheTTL is the default TTL of cached decisions. It is short because these pages
// are seldom read.
const cacheTTL = 10 * time.Second

// AddFlags registers the flags.
func (a *Access) AddFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&a.Open, "authorization-always-allow-paths", openPaths(), "paths that are served without authentication and authorization")
	fs.DurationVar(&a.TokenTTL, "authentication-token-webhook-cache-ttl", cacheTTL, "cache TTL for authenticated tokens")
	fs.DurationVar(&a.AllowTTL, "authorization-webhook-cache-authorized-ttl", cacheTTL, "cache TTL for allowed decisions")
	fs.DurationVar(&a.DenyTTL, "authorization-webhook-cache-unauthorized-ttl", cacheTTL, "cache TTL for denied decisions")
}

func openPaths() []string { return []string{"/healthz", "/readyz", "/livez"} }

// Guard returns a handler that passes a request on to h if its user is allowed to make
// it. The API server authenticates tokens (TokenReview) and authorizes users
// (SubjectAccessReview). revoked returns the list of revoked certificates, as in
// access.Config.
func (a *Access) Guard(h http.Handler, c *client.Client, revoked func() (*revocation.List, bool), log *slog.Logger) http.Handler {
	who := access.New(access.Config{
		Reviews: access.Reviews{Client: c}, Tokens: true, TokenTTL: a.TokenTTL, AllowTTL: a.AllowTTL, DenyTTL: a.DenyTTL, Revoked: revoked,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.IsOpen(r.URL.Path) {
			h.ServeHTTP(w, r)
			return
		}
		user, err := who.Authenticate(r)
		if err != nil {
			if !errors.Is(err, access.ErrUnknown) {
				log.Warn("authentication failed", "path", r.URL.Path, "error", err)
			}
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		ok, err := who.MayPath(r.Context(), user, strings.ToLower(r.Method), r.URL.Path)
		switch {
		case err != nil:
			log.Warn("authorization failed", "user", user.Name, "path", r.URL.Path, "error", err)
			http.Error(w, "Internal Server Error: authorization is not available", http.StatusInternalServerError)
		case !ok:
			http.Error(w, "forbidden: User \""+user.Name+"\" cannot "+strings.ToLower(r.Method)+" path \""+r.URL.Path+"\"", http.StatusForbidden)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// IsOpen reports whether a path needs no credential.
func (a *Access) IsOpen(path string) bool {
	for _, open := range a.Open {
		if prefix, ok := strings.CutSuffix(open, "*"); path == open || ok && strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}
