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

	"podium/pkg/client/answers"
	"podium/pkg/client/revocation"
)

// The names of everybody and of nobody.
const (
	authenticated   = "system:authenticated"
	unauthenticated = "system:unauthenticated"
	anonymous       = "system:anonymous"
	masters         = "system:masters" // who may do everything: nobody has to be asked
)

// Config says whom and how long to believe.
type Config struct {
	Reviews Reviews
	// Tokens says whether bearer tokens are asked about; certificates always count.
	Tokens bool
	// Anonymous lets those who show nothing ask for permission, too.
	Anonymous bool

	TokenTTL time.Duration // how long a token's user is remembered; 0: not at all
	AllowTTL time.Duration // how long a permission is
	DenyTTL  time.Duration // how long a refusal is

	// Revoked is the list of revoked certificates; while it is not known, no
	// certificate counts. nil: none is revoked.
	Revoked func() (list *revocation.List, known bool)

	Now func() time.Time // nil: time.Now
}

// How long answers hold where nothing else is said.
const (
	DefaultTokenTTL = 2 * time.Minute
	DefaultAllowTTL = 5 * time.Minute
	DefaultDenyTTL  = 30 * time.Second
)

// reviewTime bounds a question to the API.
const reviewTime = 10 * time.Second

// most answers are remembered, of each sort.
const most = 10_000

// Delegate knows users and their permissions by asking.
type Delegate struct {
	cfg     Config
	tokens  *answers.Cache[[sha256.Size]byte, *User]
	allowed *answers.Cache[[sha256.Size]byte, bool]
}

// New is a Delegate that knows nothing yet.
func New(cfg Config) *Delegate {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Delegate{
		cfg:    cfg,
		tokens: answers.New[[sha256.Size]byte, *User](most, cfg.Now), allowed: answers.New[[sha256.Size]byte, bool](most, cfg.Now),
	}
}

// ErrUnknown says that a request shows nothing by which its user is known.
var ErrUnknown = errors.New("the request has no credentials that are known here")

// Authenticate finds out who a request comes from: by the certificate that TLS
// has verified, or by the bearer token.
func (d *Delegate) Authenticate(r *http.Request) (*User, error) {
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

// byCertificate returns the user that a verified certificate names, nil if the
// request shows none. A connection may be older than its certificate's end.
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

func (d *Delegate) byToken(ctx context.Context, token string) (*User, error) {
	key := sha256.Sum256([]byte(token))
	user, known := d.tokens.Get(key)
	if !known {
		ctx, cancel := context.WithTimeout(ctx, reviewTime)
		defer cancel()
		var err error
		if user, err = d.cfg.Reviews.Token(ctx, token); err != nil {
			return nil, err // to be asked again
		}
		d.tokens.Put(key, user, d.cfg.TokenTTL)
	}
	if user == nil {
		return nil, ErrUnknown
	}
	return user, nil
}

// MayResource says whether a user may do this to an object of the API.
func (d *Delegate) MayResource(ctx context.Context, u *User, what authorizationv1.ResourceAttributes) (bool, error) {
	spec := u.as()
	spec.ResourceAttributes = &what
	return d.may(ctx, spec)
}

// MayPath says whether a user may use a path of ours.
func (d *Delegate) MayPath(ctx context.Context, u *User, verb, path string) (bool, error) {
	spec := u.as()
	spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: verb, Path: path}
	return d.may(ctx, spec)
}

func (d *Delegate) may(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	if slices.Contains(spec.Groups, masters) {
		return true, nil
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return false, fmt.Errorf("describe what is asked: %w", err)
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
