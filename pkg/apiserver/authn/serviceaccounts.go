package authn

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

// TokenConfig configures the signing and verification of service account
// tokens.
type TokenConfig struct {
	Issuers   []string       // the first is the issuer of new tokens; tokens of all are accepted
	Audiences []string       // the server's audiences; default: the issuers
	Keys      func() *KeySet // returns the current keys
	Now       func() time.Time
}

// Tokens signs and verifies service account tokens. It is safe for concurrent
// use.
type Tokens struct {
	cfg    TokenConfig
	memo   memo[*KeySet, *signed[private]]
	legacy memo[*KeySet, *signed[legacyClaims]]
	uses   chan Use
}

// signed is the claims of a token whose signature is valid.
type signed[T any] struct {
	public jwt.Claims
	own    T
}

// NewTokens returns Tokens. cfg must have an issuer and Keys.
func NewTokens(cfg TokenConfig) *Tokens {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if len(cfg.Audiences) == 0 {
		cfg.Audiences = cfg.Issuers
	}
	return &Tokens{cfg: cfg, uses: make(chan Use, 100)}
}

// Audiences returns the server's audiences, which are those of tokens that
// request none.
func (t *Tokens) Audiences() []string { return t.cfg.Audiences }

// Claims are the claims of a service account token.
type Claims struct {
	ID             string // unique
	Namespace      string
	ServiceAccount Ref
	Pod            *Ref // the object that the token is bound to; the token becomes invalid when it is deleted
	Secret         *Ref
	Node           *Ref // the bound pod's node, or the bound node
	Audiences      []string
	IssuedAt       time.Time // also the start of its validity
	Expires        time.Time
}

// Ref identifies an object by name and UID.
type Ref struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid,omitempty"`
}

// private are the claims that Kubernetes defines.
type private struct {
	Kubernetes bound `json:"kubernetes.io"`
}

// bound is the claim kubernetes.io: the account and the objects that the token
// is bound to.
type bound struct {
	Namespace      string `json:"namespace,omitempty"`
	Node           *Ref   `json:"node,omitempty"`
	Pod            *Ref   `json:"pod,omitempty"`
	Secret         *Ref   `json:"secret,omitempty"`
	ServiceAccount Ref    `json:"serviceaccount"`
}

// SignToken returns a signed token with the claims c. It returns an error if
// there is no signing key.
func (t *Tokens) SignToken(_ context.Context, c Claims) (string, error) {
	signer := t.cfg.Keys().signer
	if signer == nil {
		return "", errNoSigner
	}
	public := jwt.Claims{
		Issuer:    t.cfg.Issuers[0],
		Subject:   subject(c.Namespace, c.ServiceAccount.Name),
		Audience:  c.Audiences,
		ID:        c.ID,
		IssuedAt:  jwt.NewNumericDate(c.IssuedAt),
		NotBefore: jwt.NewNumericDate(c.IssuedAt),
		Expiry:    jwt.NewNumericDate(c.Expires),
	}
	own := private{bound{Namespace: c.Namespace, Node: c.Node, Pod: c.Pod, Secret: c.Secret, ServiceAccount: c.ServiceAccount}}
	token, err := jwt.Signed(signer).Claims(public).Claims(own).Serialize()
	if err != nil {
		return "", fmt.Errorf("sign service account token: %w", err)
	}
	return token, nil
}

// subject returns the user name of a service account, which is also the token's
// subject.
func subject(namespace, account string) string {
	return "system:serviceaccount:" + namespace + ":" + account
}

var (
	errTokenExpired     = errors.New("service account token has expired")
	errTokenEarly       = errors.New("service account token is not valid yet")
	errTokenInvalidated = errors.New("service account token has been invalidated")
	errTokenSubject     = errors.New("service account token: the subject is not the service account")
)

// AuthenticateToken implements TokenAuthenticator for tokens that this cluster
// has issued, including those in Secrets.
func (t *Tokens) AuthenticateToken(ctx context.Context, objects Objects, p Presented) (*Identity, error) {
	switch issuer := issuerOf(p.Token); {
	case issuer == legacyIssuer:
		return t.kept(ctx, objects, p)
	case slices.Contains(t.cfg.Issuers, issuer):
		return t.bound(ctx, objects, p)
	}
	return nil, nil
}

// issuerOf returns the issuer claim of a token without verifying it, to select
// the authenticator; "" if it is not a JWT.
func issuerOf(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Issuer
}

// verify verifies a token's signature and returns its claims. It caches tokens
// with valid signatures.
func verify[T any](memo *memo[*KeySet, *signed[T]], keys *KeySet, token string) (*signed[T], error) {
	id := fingerprint(sha256.Sum256([]byte(token)))
	if s, ok := memo.get(keys, id); ok {
		return s, nil
	}
	s := &signed[T]{}
	if err := keys.read(token, &s.public, &s.own); err != nil {
		return nil, err
	}
	memo.put(keys, id, s)
	return s, nil
}

// read verifies the signature with the key that the token names, or else with
// any, and decodes the claims.
func (k *KeySet) read(token string, into ...any) error {
	if len(k.allowed) == 0 {
		return ErrToken
	}
	parsed, err := jwt.ParseSigned(token, k.allowed)
	if err != nil {
		return ErrToken
	}
	for _, h := range parsed.Headers {
		if key := k.public[h.KeyID]; key != nil && parsed.Claims(key, into...) == nil {
			return nil
		}
	}
	for _, key := range k.public {
		if parsed.Claims(key, into...) == nil {
			return nil
		}
	}
	return ErrToken
}

// bound verifies a token: signature, time, audiences, subject, and the objects
// it is bound to.
func (t *Tokens) bound(ctx context.Context, objects Objects, p Presented) (*Identity, error) {
	token, err := verify(&t.memo, t.cfg.Keys(), p.Token)
	if err != nil {
		return nil, err
	}
	public, k := token.public, token.own.Kubernetes
	if err := t.checkTime(public); err != nil {
		return nil, err
	}
	audiences := slices.DeleteFunc(slices.Clone(p.Audiences), func(a string) bool { return !public.Audience.Contains(a) })
	if len(audiences) == 0 {
		return nil, fmt.Errorf("token audiences %q is invalid for the target audiences %q", []string(public.Audience), p.Audiences)
	}
	if public.Subject != subject(k.Namespace, k.ServiceAccount.Name) {
		return nil, errTokenSubject
	}
	if err := t.checkBound(ctx, objects, k); err != nil {
		return nil, err
	}
	return &Identity{User: userOf(public, k), Audiences: audiences}, nil
}

// checkTime returns an error unless the token is valid now, or was or will be within
// a minute: as upstream, for servers whose clocks differ. A token without an expiry
// is invalid.
func (t *Tokens) checkTime(c jwt.Claims) error {
	err := c.ValidateWithLeeway(jwt.Expected{Time: t.cfg.Now()}, jwt.DefaultLeeway)
	switch {
	case c.Expiry == nil || errors.Is(err, jwt.ErrExpired):
		return errTokenExpired
	case errors.Is(err, jwt.ErrNotValidYet):
		return errTokenEarly
	case err != nil:
		return ErrToken
	}
	return nil
}

// deletedLeeway is how long a token stays valid after the deletion timestamp of
// the object it is bound to, so that the pod can still use it while it
// terminates.
const deletedLeeway = time.Minute

// checkBound returns an error unless the objects that the token is bound to
// exist with the same UID. It checks nothing if objects is nil.
func (t *Tokens) checkBound(ctx context.Context, objects Objects, k bound) error {
	if objects == nil {
		return nil
	}
	type check struct {
		resource, namespace string
		ref                 *Ref
	}
	checks := []check{{"serviceaccounts", k.Namespace, &k.ServiceAccount}, {"secrets", k.Namespace, k.Secret}, {"pods", k.Namespace, k.Pod}}
	if k.Pod == nil { // a pod's token names its node without being bound to it
		checks = append(checks, check{"nodes", "", k.Node})
	}
	for _, c := range checks {
		if c.ref == nil {
			continue
		}
		lives := func(obj scheme.Object) bool {
			gone := obj.GetDeletionTimestamp()
			return obj.GetUID() == c.ref.UID && (gone == nil || !gone.Time.Before(t.cfg.Now().Add(-deletedLeeway)))
		}
		ok, err := find(ctx, objects, c.resource, c.namespace, c.ref.Name, lives)
		if err != nil {
			return fmt.Errorf("service account token is bound to %s %q: %w", c.resource, c.ref.Name, err)
		}
		if !ok {
			return errTokenInvalidated
		}
	}
	return nil
}

// recent is implemented by Objects with a cache, which may be slightly stale.
type recent interface {
	Recent(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) scheme.Object
}

// find reports whether an object exists for which good returns true. It accepts
// a positive result from a cache, and reads the store before it returns a
// negative one.
func find(ctx context.Context, objects Objects, resource, namespace, name string, good func(scheme.Object) bool) (bool, error) {
	gvr := corev1.SchemeGroupVersion.WithResource(resource)
	if r, ok := objects.(recent); ok {
		if obj := r.Recent(ctx, gvr, namespace, name); obj != nil && good(obj) {
			return true, nil
		}
	}
	obj, err := objects.Get(ctx, gvr, namespace, name)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return good(obj), nil
}

// The extra keys of users that a token authenticates.
const (
	extraCredential = "authentication.kubernetes.io/credential-id"
	extraPrefix     = "authentication.kubernetes.io/"
)

// userOf returns the user that a token's claims describe.
func userOf(public jwt.Claims, k bound) *request.User {
	u := accountUser(k.Namespace, k.ServiceAccount)
	u.Extra = map[string][]string{}
	if public.ID != "" {
		u.Extra[extraCredential] = []string{"JTI=" + public.ID}
	}
	for name, ref := range map[string]*Ref{"pod": k.Pod, "node": k.Node} {
		if ref == nil {
			continue
		}
		u.Extra[extraPrefix+name+"-name"] = []string{ref.Name}
		if ref.UID != "" {
			u.Extra[extraPrefix+name+"-uid"] = []string{string(ref.UID)}
		}
	}
	return u
}

// accountUser returns the user of a service account.
func accountUser(namespace string, account Ref) *request.User {
	return &request.User{
		Name: subject(namespace, account.Name), UID: string(account.UID),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, Authenticated},
	}
}
