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

// Access is who may read a daemon's pages: whoever the API says may.
type Access struct {
	// Open are the paths for everybody, also without a credential; one that
	// ends with * stands for all that begin so.
	Open                        []string
	TokenTTL, AllowTTL, DenyTTL time.Duration
}

// remembered is how long answers of the API hold: short, for these pages are
// seldom read.
const remembered = 10 * time.Second

// AddFlags declares the flags.
func (a *Access) AddFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&a.Open, "authorization-always-allow-paths", openPaths(), "paths that everybody may read, without a credential")
	fs.DurationVar(&a.TokenTTL, "authentication-token-webhook-cache-ttl", remembered, "how long a token's user is remembered")
	fs.DurationVar(&a.AllowTTL, "authorization-webhook-cache-authorized-ttl", remembered, "how long a permission is remembered")
	fs.DurationVar(&a.DenyTTL, "authorization-webhook-cache-unauthorized-ttl", remembered, "how long a refusal is remembered")
}

func openPaths() []string { return []string{"/healthz", "/readyz", "/livez"} }

// Guard lets those through to h who may: the API is asked who a token is
// (TokenReview) and whether its user may (SubjectAccessReview). revoked is the
// list of revoked certificates, as in access.Config.
func (a *Access) Guard(h http.Handler, c *client.Client, revoked func() (*revocation.List, bool), log *slog.Logger) http.Handler {
	who := access.New(access.Config{
		Reviews: access.Reviews{Client: c}, Tokens: true, TokenTTL: a.TokenTTL, AllowTTL: a.AllowTTL, DenyTTL: a.DenyTTL, Revoked: revoked,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.open(r.URL.Path) {
			h.ServeHTTP(w, r)
			return
		}
		user, err := who.Authenticate(r)
		if err != nil {
			if !errors.Is(err, access.ErrUnknown) {
				log.Warn("authentication not decided", "path", r.URL.Path, "error", err)
			}
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		ok, err := who.MayPath(r.Context(), user, strings.ToLower(r.Method), r.URL.Path)
		switch {
		case err != nil:
			log.Warn("authorization not decided", "user", user.Name, "path", r.URL.Path, "error", err)
			http.Error(w, "Internal Server Error: the API cannot be asked for permission", http.StatusInternalServerError)
		case !ok:
			http.Error(w, "forbidden: User \""+user.Name+"\" cannot "+strings.ToLower(r.Method)+" path \""+r.URL.Path+"\"", http.StatusForbidden)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

func (a *Access) open(path string) bool {
	for _, open := range a.Open {
		if prefix, ok := strings.CutSuffix(open, "*"); path == open || ok && strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}
