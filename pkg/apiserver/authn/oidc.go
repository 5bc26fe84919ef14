package authn

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/webhook"
	"podium/pkg/backoff"
	"podium/pkg/client/certfile"
)

// OIDCConfig configures an OpenID Connect provider and how its tokens map to
// users.
//
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#openid-connect-tokens
type OIDCConfig struct {
	IssuerURL      string
	ClientID       string // the audience
	CAFile         string // "": the system's CAs
	UsernameClaim  string
	UsernamePrefix string // "": the issuer's URL and #, unless the claim is email; "-": none
	GroupsClaim    string // "": no groups
	GroupsPrefix   string
	Algorithms     []string          // allowed signing algorithms
	RequiredClaims map[string]string // claims and values that tokens must have

	Log *slog.Logger
	Now func() time.Time // nil: time.Now
}

// Problems returns an error with everything that is wrong with the
// configuration, nil if it is valid.
func (c *OIDCConfig) Problems() error {
	var errs []error
	u, err := url.Parse(c.IssuerURL)
	switch {
	case err != nil:
		errs = append(errs, errors.New("--oidc-issuer-url is no URL"))
	case u.Scheme != "https":
		errs = append(errs, fmt.Errorf("--oidc-issuer-url=%s must begin with https://", c.IssuerURL))
	}
	if c.ClientID == "" {
		errs = append(errs, errors.New("--oidc-issuer-url and --oidc-client-id belong together"))
	}
	if c.UsernameClaim == "" {
		errs = append(errs, errors.New("--oidc-username-claim must name a claim"))
	}
	for _, alg := range c.Algorithms {
		switch alg {
		case oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512:
		default:
			errs = append(errs, fmt.Errorf("--oidc-signing-algs: %q is none of RS256, RS384, RS512, ES256, ES384, ES512, PS256, PS384, PS512", alg))
		}
	}
	return errors.Join(errs...)
}

// OIDC authenticates users by the ID tokens of one provider. It is safe for
// concurrent use.
type OIDC struct {
	cfg      OIDCConfig
	client   *http.Client
	verifier atomic.Pointer[oidc.IDTokenVerifier] // nil until the provider has been reached
}

// NewOIDC validates the configuration and returns an OIDC. It rejects all
// tokens until Run has reached the provider.
func NewOIDC(cfg OIDCConfig) (*OIDC, error) {
	if err := cfg.Problems(); err != nil {
		return nil, err
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.CAFile != "" {
		pool, err := certfile.NewPool(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-ca-file: %w", err)
		}
		trust.RootCAs = pool.Get()
	}
	if cfg.UsernamePrefix == "" && cfg.UsernameClaim != "email" {
		cfg.UsernamePrefix = cfg.IssuerURL + "#"
	}
	if cfg.UsernamePrefix == "-" {
		cfg.UsernamePrefix = ""
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &OIDC{cfg: cfg, client: &http.Client{
		Transport: webhook.Bounded(trust, nil), Timeout: askTimeout, CheckRedirect: webhook.NoRedirects,
	}}, nil
}

// askTimeout limits one request to the provider.
const askTimeout = 10 * time.Second

// findEvery is the interval between attempts to reach the provider.
const findEvery = 10 * time.Second

// Run reads the provider's configuration and retries until it succeeds. It
// blocks until then or until ctx ends.
func (o *OIDC) Run(ctx context.Context) {
	for {
		err := o.find(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		o.cfg.Log.Warn("discovery of the OpenID Connect provider failed; its tokens are not accepted until it succeeds", "issuer", o.cfg.IssuerURL, "err", err)
		_ = backoff.Sleep(ctx, findEvery) // an ended ctx ends the loop
	}
}

// find reads the provider's discovery document and sets the verifier.
func (o *OIDC) find(ctx context.Context) error {
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, o.client), o.cfg.IssuerURL)
	if err != nil {
		return fmt.Errorf("read the provider's configuration: %w", err)
	}
	o.verifier.Store(provider.Verifier(&oidc.Config{ClientID: o.cfg.ClientID, SupportedSigningAlgs: o.cfg.Algorithms, Now: o.cfg.Now}))
	return nil
}

var errNoProvider = errors.New("oidc: the provider has not been reached yet")

// AuthenticateToken implements TokenAuthenticator for the provider's tokens.
func (o *OIDC) AuthenticateToken(ctx context.Context, _ Objects, p Presented) (*Identity, error) {
	if issuerOf(p.Token) != o.cfg.IssuerURL {
		return nil, nil
	}
	verifier := o.verifier.Load()
	if verifier == nil {
		return nil, errNoProvider
	}
	token, err := verifier.Verify(ctx, p.Token)
	if err != nil {
		return nil, fmt.Errorf("oidc: verify token: %w", err)
	}
	var claims claimSet
	if err := token.Claims(&claims); err != nil {
		return nil, errors.New("oidc: the token's claims are no JSON object")
	}
	user, err := o.user(claims)
	if err != nil {
		return nil, err
	}
	return &Identity{User: user}, nil
}

// claimSet is the claims of a token, each as JSON.
type claimSet map[string]json.RawMessage

// text returns a claim that must be a string.
func (c claimSet) text(name string) (string, error) {
	raw, ok := c[name]
	if !ok {
		return "", fmt.Errorf("oidc: the token has no claim %q", name)
	}
	var value string
	if err := json.Unmarshal(raw, &value); err != nil {
		return "", fmt.Errorf("oidc: the claim %q is no string", name)
	}
	return value, nil
}

// texts returns a claim that is a string or a list of strings, nil if it is
// absent.
func (c claimSet) texts(name string) ([]string, error) {
	raw, ok := c[name]
	if !ok || string(raw) == "null" {
		return nil, nil
	}
	var many []string
	if json.Unmarshal(raw, &many) == nil {
		return many, nil
	}
	one, err := c.text(name)
	if err != nil {
		return nil, fmt.Errorf("oidc: the claim %q is neither a string nor a list of strings", name)
	}
	return []string{one}, nil
}

// user returns the user that a token's claims describe.
func (o *OIDC) user(claims claimSet) (*request.User, error) {
	name, err := claims.text(o.cfg.UsernameClaim)
	if err != nil {
		return nil, err
	}
	if name == "" {
		return nil, fmt.Errorf("oidc: the claim %q is empty", o.cfg.UsernameClaim)
	}
	if raw, ok := claims["email_verified"]; ok && o.cfg.UsernameClaim == "email" && string(raw) != "true" {
		return nil, errors.New("oidc: the email address is not verified")
	}
	for claim, want := range o.cfg.RequiredClaims {
		if have, err := claims.text(claim); err != nil {
			return nil, err
		} else if have != want {
			return nil, fmt.Errorf("oidc: the claim %q does not have the required value", claim)
		}
	}
	u := &request.User{Name: o.cfg.UsernamePrefix + name}
	if jti, err := claims.text("jti"); err == nil && jti != "" {
		u.Extra = map[string][]string{extraCredential: {"JTI=" + jti}}
	}
	if o.cfg.GroupsClaim != "" {
		groups, err := claims.texts(o.cfg.GroupsClaim)
		if err != nil {
			return nil, err
		}
		for _, g := range groups {
			u.Groups = append(u.Groups, o.cfg.GroupsPrefix+g)
		}
	}
	u.Groups = append(u.Groups, Authenticated)
	return u, nil
}
