package access

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"podium/pkg/client/revocation"
	"podium/pkg/client/ttlcache"
)

// Names of built-in users and groups.
const (
	authenticated   = "system:authenticated"
	unauthenticated = "system:unauthenticated"
	anonymous       = "system:anonymous"
	masters         = "system:masters" // members may do everything; their requests need no review
)

// Config configures a Delegate.
type Config struct {
	Reviews Reviews
	// Tokens enables bearer tokens. Client certificates are always accepted.
	Tokens bool
	// Anonymous makes Authenticate return system:anonymous for a request without
	// an Authorization header, instead of ErrUnknown.
	Anonymous bool
	// Proxy returns the user that a front proxy names, nil for the request of any
	// other client; with a nil Proxy there are no front proxies.
	Proxy func(r *http.Request) (*User, error)

	TokenTTL time.Duration // how long the user of a token is cached; 0 disables the cache
	AllowTTL time.Duration // how long an allowed access decision is cached
	DenyTTL  time.Duration // how long a denied access decision is cached

	// Revoked returns the list of revoked certificates. While known is false, no
	// certificate is accepted. With a nil Revoked no certificate is revoked.
	Revoked func() (list *revocation.List, known bool)

	Now func() time.Time // nil: time.Now
}

// Default cache TTLs.
const (
	DefaultTokenTTL = 2 * time.Minute
	DefaultAllowTTL = 5 * time.Minute
	DefaultDenyTTL  = 30 * time.Second
)

// reviewTime is the timeout of one TokenReview or SubjectAccessReview.
const reviewTime = 10 * time.Second

// most is the size of the token cache and of the decision cache, in entries.
const most = 10_000

// Delegate authenticates and authorizes requests by asking the API server, and
// caches the answers. It is safe for concurrent use.
type Delegate struct {
	cfg     Config
	tokens  *ttlcache.Cache[[sha256.Size]byte, *User]
	allowed *ttlcache.Cache[[sha256.Size]byte, bool]
}

// New returns a Delegate with empty caches. It sends no request.
func New(cfg Config) *Delegate {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Delegate{
		cfg:    cfg,
		tokens: ttlcache.New[[sha256.Size]byte, *User](most, cfg.Now), allowed: ttlcache.New[[sha256.Size]byte, bool](most, cfg.Now),
	}
}

// ErrUnknown means that a request has no accepted credentials: answer 401.
var ErrUnknown = errors.New("the request has no valid credentials")

// Authenticate returns the user that a request authenticates as: the one that a front
// proxy names, or else by the client certificate that TLS has verified, or else by the
// bearer token. It returns ErrUnknown if the request has no accepted credentials. Any
// other error means that the TokenReview failed. It blocks for at most 10 s.
func (d *Delegate) Authenticate(r *http.Request) (*User, error) {
	if d.cfg.Proxy != nil {
		if user, err := d.cfg.Proxy(r); user != nil || err != nil {
			return user, err
		}
	}
	if user, err := d.byCertificate(r); user != nil || err != nil {
		return user, err
	}
	header := r.Header.Get("Authorization")
	if header == "" && d.cfg.Anonymous {
		return &User{Name: anonymous, Groups: []string{unauthenticated}}, nil
	}
	kind, token, _ := strings.Cut(strings.TrimSpace(header), " ")
	if token = strings.TrimSpace(token); token == "" || !strings.EqualFold(kind, "Bearer") || !d.cfg.Tokens {
		return nil, ErrUnknown
	}
	return d.byToken(r.Context(), token)
}

// byCertificate returns the user that a verified certificate names, or nil if the
// request has no certificate. It checks the expiry again because a connection can
// outlive its certificate.
func (d *Delegate) byCertificate(r *http.Request) (*User, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil, nil
	}
	chain := r.TLS.VerifiedChains[0]
	leaf := chain[0]
	if leaf.Subject.CommonName == "" || d.cfg.Now().After(leaf.NotAfter) {
		return nil, nil
	}
	revocation.Note(r.Context(), chain)
	if d.cfg.Revoked != nil {
		if list, known := d.cfg.Revoked(); !known || list.Any(chain) {
			return nil, ErrUnknown
		}
	}
	return &User{Name: leaf.Subject.CommonName, Groups: append(slices.Clone(leaf.Subject.Organization), authenticated)}, nil
}

// byToken returns the user of a bearer token, from the cache or by a TokenReview. It
// caches unknown tokens, too, but not errors.
func (d *Delegate) byToken(ctx context.Context, token string) (*User, error) {
	key := sha256.Sum256([]byte(token))
	user, known := d.tokens.Get(key)
	if !known {
		ctx, cancel := context.WithTimeout(ctx, reviewTime)
		defer cancel()
		var err error
		if user, err = d.cfg.Reviews.Token(ctx, token); err != nil {
			return nil, err // not cached: the next request tries again
		}
		d.tokens.Put(key, user, d.cfg.TokenTTL)
	}
	if user == nil {
		return nil, ErrUnknown
	}
	return user, nil
}

// MayResource reports whether a user may access a resource of the API. It blocks for
// at most 10 s; the error is not nil if the SubjectAccessReview failed.
func (d *Delegate) MayResource(ctx context.Context, u *User, what authorizationv1.ResourceAttributes) (bool, error) {
	spec := u.as()
	spec.ResourceAttributes = &what
	return d.may(ctx, spec)
}

// MayPath reports whether a user may access a non-resource path of the calling
// server. It blocks and fails as MayResource does.
func (d *Delegate) MayPath(ctx context.Context, u *User, verb, path string) (bool, error) {
	spec := u.as()
	spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: verb, Path: path}
	return d.may(ctx, spec)
}

// may returns the decision on an access, from the cache or by a SubjectAccessReview.
// Members of system:masters are always allowed. Errors are not cached.
func (d *Delegate) may(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	if slices.Contains(spec.Groups, masters) {
		return true, nil
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return false, fmt.Errorf("encode the access review: %w", err)
	}
	key := sha256.Sum256(text)
	if allowed, known := d.allowed.Get(key); known {
		return allowed, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTime)
	defer cancel()
	allowed, err := d.cfg.Reviews.Allowed(ctx, spec)
	if err != nil {
		return false, err
	}
	ttl := d.cfg.DenyTTL
	if allowed {
		ttl = d.cfg.AllowTTL
	}
	d.allowed.Put(key, allowed, ttl)
	return allowed, nil
}
