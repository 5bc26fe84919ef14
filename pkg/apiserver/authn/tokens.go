package authn

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/apiserver/request"
)

// TokenConfig is what service account tokens are made and checked with.
type TokenConfig struct {
	Issuer     string
	Audiences  []string           // the server's own names; default: the issuer
	SigningKey crypto.Signer      // nil: no tokens are handed out
	PublicKeys []crypto.PublicKey // accepted besides the signing key's
	Now        func() time.Time
}

// Tokens signs and verifies service account tokens.
type Tokens struct {
	cfg     TokenConfig
	signer  jose.Signer // nil if there is no key
	keys    map[string]crypto.PublicKey
	allowed []jose.SignatureAlgorithm
}

// NewTokens prepares the keys.
func NewTokens(cfg TokenConfig) (*Tokens, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if len(cfg.Audiences) == 0 {
		cfg.Audiences = []string{cfg.Issuer}
	}
	t := &Tokens{cfg: cfg, keys: map[string]crypto.PublicKey{}}
	public := slices.Clone(cfg.PublicKeys)
	if cfg.SigningKey != nil {
		public = append(public, cfg.SigningKey.Public())
	}
	for _, key := range public {
		id, err := keyID(key)
		if err != nil {
			return nil, err
		}
		alg, err := algorithm(key)
		if err != nil {
			return nil, err
		}
		t.keys[id] = key
		t.allowed = append(t.allowed, alg)
	}
	if cfg.SigningKey == nil {
		return t, nil
	}
	id, err := keyID(cfg.SigningKey.Public())
	if err != nil {
		return nil, err
	}
	alg, err := algorithm(cfg.SigningKey.Public())
	if err != nil {
		return nil, err
	}
	key := jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: cfg.SigningKey, KeyID: id}}
	if t.signer, err = jose.NewSigner(key, nil); err != nil {
		return nil, fmt.Errorf("sign service account tokens: %w", err)
	}
	return t, nil
}

// Audiences are the server's own names: a token without others is for them.
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
	if t.signer == nil {
		return "", errors.New("the server has no key to sign service account tokens with")
	}
	public := jwt.Claims{
		Issuer:    t.cfg.Issuer,
		Subject:   subjectPrefix + c.Namespace + ":" + c.ServiceAccount.Name,
		Audience:  c.Audiences,
		ID:        c.ID,
		IssuedAt:  jwt.NewNumericDate(c.IssuedAt),
		NotBefore: jwt.NewNumericDate(c.IssuedAt),
		Expiry:    jwt.NewNumericDate(c.Expires),
	}
	own := private{bound{Namespace: c.Namespace, Node: c.Node, Pod: c.Pod, Secret: c.Secret, ServiceAccount: c.ServiceAccount}}
	token, err := jwt.Signed(t.signer).Claims(public).Claims(own).Serialize()
	if err != nil {
		return "", fmt.Errorf("sign service account token: %w", err)
	}
	return token, nil
}

const subjectPrefix = "system:serviceaccount:"

// AuthenticateToken knows the tokens that are signed with one of the keys.
func (t *Tokens) AuthenticateToken(ctx context.Context, objects Objects, p Presented) (*Identity, error) {
	return t.verify(ctx, objects, p)
}

// verify checks a token from the signature down to the objects it is bound to.
func (t *Tokens) verify(ctx context.Context, objects Objects, p Presented) (*Identity, error) {
	if len(t.allowed) == 0 {
		return nil, errToken
	}
	parsed, err := jwt.ParseSigned(p.Token, t.allowed)
	if err != nil {
		return nil, errToken
	}
	var public jwt.Claims
	var own private
	if err := t.claims(parsed, &public, &own); err != nil {
		return nil, err
	}
	if public.Issuer != t.cfg.Issuer {
		return nil, errToken
	}
	if err := public.ValidateWithLeeway(jwt.Expected{Time: t.cfg.Now()}, 0); err != nil {
		return nil, fmt.Errorf("service account token: %w", err)
	}
	audiences := slices.DeleteFunc(slices.Clone(p.Audiences), func(a string) bool { return !public.Audience.Contains(a) })
	if len(audiences) == 0 {
		return nil, fmt.Errorf("token audiences %q is invalid for the target audiences %q", []string(public.Audience), p.Audiences)
	}
	k := own.Kubernetes
	if public.Subject != subjectPrefix+k.Namespace+":"+k.ServiceAccount.Name {
		return nil, errors.New("service account token: the subject is not the service account")
	}
	if err := t.checkBound(ctx, objects, k); err != nil {
		return nil, err
	}
	return &Identity{User: userOf(public, k), Audiences: audiences}, nil
}

// claims verifies the signature with the key the token names, or else with any.
func (t *Tokens) claims(parsed *jwt.JSONWebToken, into ...any) error {
	for _, h := range parsed.Headers {
		if key := t.keys[h.KeyID]; key != nil && parsed.Claims(key, into...) == nil {
			return nil
		}
	}
	for _, key := range t.keys {
		if parsed.Claims(key, into...) == nil {
			return nil
		}
	}
	return errToken
}

// deletedLeeway is how long a token outlives what it is bound to: its user
// needs it to say goodbye.
const deletedLeeway = time.Minute

func (t *Tokens) checkBound(ctx context.Context, objects Objects, k bound) error {
	if objects == nil {
		return nil
	}
	core := corev1.SchemeGroupVersion
	checks := []struct {
		resource, namespace string
		ref                 *Ref
	}{
		{"serviceaccounts", k.Namespace, &k.ServiceAccount},
		{"secrets", k.Namespace, k.Secret},
		{"pods", k.Namespace, k.Pod},
	}
	if k.Pod == nil {
		checks = append(checks, struct {
			resource, namespace string
			ref                 *Ref
		}{"nodes", "", k.Node})
	}
	for _, c := range checks {
		if c.ref == nil {
			continue
		}
		obj, err := objects.Get(ctx, core.WithResource(c.resource), c.namespace, c.ref.Name)
		if err != nil {
			return fmt.Errorf("service account token is bound to %s %q: %w", c.resource, c.ref.Name, err)
		}
		if c.ref.UID != "" && obj.GetUID() != c.ref.UID {
			return fmt.Errorf("service account token is bound to %s %q, which is another one now", c.resource, c.ref.Name)
		}
		if gone := obj.GetDeletionTimestamp(); gone != nil && gone.Time.Before(t.cfg.Now().Add(-deletedLeeway)) {
			return fmt.Errorf("service account token is bound to %s %q, which has been deleted", c.resource, c.ref.Name)
		}
	}
	return nil
}

// userOf is the user that a token's claims describe.
func userOf(public jwt.Claims, k bound) *request.User {
	u := &request.User{
		Name:   public.Subject,
		UID:    string(k.ServiceAccount.UID),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + k.Namespace, Authenticated},
		Extra:  map[string][]string{},
	}
	if public.ID != "" {
		u.Extra["authentication.kubernetes.io/credential-id"] = []string{"JTI=" + public.ID}
	}
	for name, ref := range map[string]*Ref{"pod": k.Pod, "node": k.Node} {
		if ref != nil {
			u.Extra["authentication.kubernetes.io/"+name+"-name"] = []string{ref.Name}
			u.Extra["authentication.kubernetes.io/"+name+"-uid"] = []string{string(ref.UID)}
		}
	}
	return u
}
