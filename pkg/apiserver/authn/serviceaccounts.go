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

// TokenConfig is what service account tokens are made and checked with.
type TokenConfig struct {
	Issuers   []string       // the first is that of new tokens; tokens of the others are known, too
	Audiences []string       // the server's own names; default: the issuers
	Keys      func() *KeySet // the present keys
	Now       func() time.Time
}

// Tokens signs and verifies service account tokens.
type Tokens struct {
	cfg    TokenConfig
	memo   memo[*KeySet, *signed[private]]
	legacy memo[*KeySet, *signed[legacyClaims]]
}

// signed is what a token says whose signature is good.
type signed[T any] struct {
	public jwt.Claims
	own    T
}

// NewTokens needs an issuer and keys.
func NewTokens(cfg TokenConfig) *Tokens {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if len(cfg.Audiences) == 0 {
		cfg.Audiences = cfg.Issuers
	}
	return &Tokens{cfg: cfg}
}

// Audiences are the server's own names: a token that asks for no others is for
// them.
func (t *Tokens) Audiences() []string { return t.cfg.Audiences }

// Claims is what a service account token says.
type Claims struct {
	ID             string // unique
	Namespace      string
	ServiceAccount Ref
	Pod            *Ref // what the token is bound to; it dies with it
	Secret         *Ref
	Node           *Ref // the bound pod's node, or the bound node
	Audiences      []string
	IssuedAt       time.Time // also not valid before
	Expires        time.Time
}

// Ref names one object in time.
type Ref struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid,omitempty"`
}

// private are the claims of Kubernetes' own.
type private struct {
	Kubernetes bound `json:"kubernetes.io"`
}

type bound struct {
	Namespace      string `json:"namespace,omitempty"`
	Node           *Ref   `json:"node,omitempty"`
	Pod            *Ref   `json:"pod,omitempty"`
	Secret         *Ref   `json:"secret,omitempty"`
	ServiceAccount Ref    `json:"serviceaccount"`
}

// SignToken makes a token that says c.
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

func subject(namespace, account string) string {
	return "system:serviceaccount:" + namespace + ":" + account
}

var (
	errTokenExpired     = errors.New("service account token has expired")
	errTokenEarly       = errors.New("service account token is not valid yet")
	errTokenInvalidated = errors.New("service account token has been invalidated")
	errTokenSubject     = errors.New("service account token: the subject is not the service account")
)

// AuthenticateToken knows the tokens that this cluster has issued, the ones
// kept in secrets among them.
func (t *Tokens) AuthenticateToken(ctx context.Context, objects Objects, p Presented) (*Identity, error) {
	switch issuer := issuerOf(p.Token); {
	case issuer == legacyIssuer:
		return t.kept(ctx, objects, p)
	case slices.Contains(t.cfg.Issuers, issuer):
		return t.bound(ctx, objects, p)
	}
	return nil, nil
}

// issuerOf is whom a token claims to be from, before anything of it is known to
// be true: it decides who looks at it.
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

// verify checks a token's signature, unless that was done before, and reads
// what it says.
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

// read checks the signature with the key that the token names, or else with
// any, and reads the claims.
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

// bound checks a token from the signature down to the objects it is bound to.
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

// checkTime: a token of ours has an end.
func (t *Tokens) checkTime(c jwt.Claims) error {
	err := c.ValidateWithLeeway(jwt.Expected{Time: t.cfg.Now()}, 0)
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

// deletedLeeway is how long a token outlives what it is bound to: its user
// needs it to say goodbye.
const deletedLeeway = time.Minute

func (t *Tokens) checkBound(ctx context.Context, objects Objects, k bound) error {
	if objects == nil {
		return nil
	}
	type check struct {
		resource, namespace string
		ref                 *Ref
	}
	checks := []check{{"serviceaccounts", k.Namespace, &k.ServiceAccount}, {"secrets", k.Namespace, k.Secret}, {"pods", k.Namespace, k.Pod}}
	if k.Pod == nil { // else the node is only told, not bound to
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

// recent is what objects have that keep a copy, which may be a moment behind.
type recent interface {
	Recent(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) scheme.Object
}

// find says whether there is an object that is good. A copy will do for a yes,
// so that a request with a token need not ask the store; it is asked before a
// no.
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

// What a token says of its user beyond the name.
const (
	extraCredential = "authentication.kubernetes.io/credential-id"
	extraPrefix     = "authentication.kubernetes.io/"
)

// userOf is the user that a token's claims describe.
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

// accountUser is a service account as a user.
func accountUser(namespace string, account Ref) *request.User {
	return &request.User{
		Name: subject(namespace, account.Name), UID: string(account.UID),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, Authenticated},
	}
}
