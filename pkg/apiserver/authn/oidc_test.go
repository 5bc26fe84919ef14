package authn_test

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
)

// provider is an OpenID Connect provider.
type provider struct {
	*httptest.Server
	signer jose.Signer
	ca     string // file
}

func newProvider(t testing.TB) *provider {
	key := newKey(t)
	p := &provider{ca: filepath.Join(t.TempDir(), "ca.crt")}
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q,"id_token_signing_alg_values_supported":["ES256"]}`, p.URL, p.URL+"/keys")
		case "/keys":
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Algorithm: "ES256", Use: "sig"}}})
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(p.Close)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
	if err := os.WriteFile(p.ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	p.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "k"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *provider) config() authn.OIDCConfig {
	return authn.OIDCConfig{
		IssuerURL: p.URL, ClientID: "kubernetes", CAFile: p.ca, UsernameClaim: "sub", GroupsClaim: "groups", GroupsPrefix: "oidc:",
		Algorithms: []string{"ES256"}, Log: slog.New(slog.DiscardHandler),
	}
}

func TestOIDC(t *testing.T) {
	p := newProvider(t)
	now := time.Now()
	for name, tc := range map[string]struct {
		claims map[string]any
		change func(*authn.OIDCConfig)
		want   *request.User
		bad    bool
	}{
		"plain": {
			claims: map[string]any{"sub": "ann", "groups": []string{"ops", "dev"}},
			want:   &request.User{Name: p.URL + "#ann", Groups: []string{"oidc:ops", "oidc:dev", "system:authenticated"}},
		},
		"one group, as text":     {claims: map[string]any{"sub": "ann", "groups": "ops"}, want: &request.User{Name: p.URL + "#ann", Groups: []string{"oidc:ops", "system:authenticated"}}},
		"no prefix":              {claims: map[string]any{"sub": "ann"}, change: func(c *authn.OIDCConfig) { c.UsernamePrefix = "-" }, want: &request.User{Name: "ann", Groups: []string{"system:authenticated"}}},
		"a prefix":               {claims: map[string]any{"sub": "ann"}, change: func(c *authn.OIDCConfig) { c.UsernamePrefix = "corp:" }, want: &request.User{Name: "corp:ann", Groups: []string{"system:authenticated"}}},
		"by email":               {claims: map[string]any{"sub": "1", "email": "a@b"}, change: func(c *authn.OIDCConfig) { c.UsernameClaim = "email" }, want: &request.User{Name: "a@b", Groups: []string{"system:authenticated"}}},
		"by unverified email":    {claims: map[string]any{"sub": "1", "email": "a@b", "email_verified": false}, change: func(c *authn.OIDCConfig) { c.UsernameClaim = "email" }, bad: true},
		"with an id":             {claims: map[string]any{"sub": "ann", "jti": "x"}, want: &request.User{Name: p.URL + "#ann", Groups: []string{"system:authenticated"}, Extra: map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=x"}}}},
		"required, there":        {claims: map[string]any{"sub": "ann", "hd": "corp"}, change: func(c *authn.OIDCConfig) { c.RequiredClaims = map[string]string{"hd": "corp"} }, want: &request.User{Name: p.URL + "#ann", Groups: []string{"system:authenticated"}}},
		"required, another":      {claims: map[string]any{"sub": "ann", "hd": "else"}, change: func(c *authn.OIDCConfig) { c.RequiredClaims = map[string]string{"hd": "corp"} }, bad: true},
		"required, absent":       {claims: map[string]any{"sub": "ann"}, change: func(c *authn.OIDCConfig) { c.RequiredClaims = map[string]string{"hd": "corp"} }, bad: true},
		"no name":                {claims: map[string]any{"groups": "ops"}, bad: true},
		"groups of numbers":      {claims: map[string]any{"sub": "ann", "groups": []int{1}}, bad: true},
		"expired":                {claims: map[string]any{"sub": "ann", "exp": now.Add(-time.Hour).Unix()}, bad: true},
		"for another client":     {claims: map[string]any{"sub": "ann", "aud": "else"}, bad: true},
		"of another provider":    {claims: map[string]any{"sub": "ann", "iss": "https://else"}},
		"signed in another way":  {claims: map[string]any{"sub": "ann"}, change: func(c *authn.OIDCConfig) { c.Algorithms = []string{"RS256"} }, bad: true},
		"of a provider not seen": {claims: map[string]any{"sub": "ann"}, change: func(c *authn.OIDCConfig) { c.Log = nil }, bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := p.config()
			if tc.change != nil {
				tc.change(&cfg)
			}
			o, err := authn.NewOIDC(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if cfg.Log != nil {
				o.Run(t.Context())
			}
			all := map[string]any{"iss": p.URL, "aud": "kubernetes", "exp": now.Add(time.Hour).Unix()}
			for k, v := range tc.claims {
				all[k] = v
			}
			token, err := jwt.Signed(p.signer).Claims(all).Serialize()
			if err != nil {
				t.Fatal(err)
			}
			who, err := o.AuthenticateToken(t.Context(), nil, authn.Presented{Token: token})
			if (err != nil) != tc.bad {
				t.Fatal(err)
			}
			if err != nil && strings.Contains(err.Error(), strings.Split(token, ".")[1]) {
				t.Errorf("the error tells the token: %v", err)
			}
			var got *request.User
			if who != nil {
				got = who.User
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOIDCFlagsAreCheckedTogether(t *testing.T) {
	c := authn.OIDCConfig{IssuerURL: "http://plain", Algorithms: []string{"none"}}
	err := c.Problems()
	for _, want := range []string{"--oidc-issuer-url", "--oidc-client-id", "--oidc-username-claim", "--oidc-signing-algs"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("nothing is said of %s in %v", want, err)
		}
	}
}

// An endless response is cut off.
func TestAnEndlessAnswerIsCutOff(t *testing.T) {
	endless := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	}))
	defer endless.Close()
	service := webhookAt(endless)
	_, err := authn.FirstToken(service(t, "v1", 0)).AuthenticateToken(t.Context(), nil, authn.Presented{Token: "x", Audiences: []string{"https://us"}})
	if err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("got %v", err)
	}
}

func clientTrust(s *httptest.Server) *tls.Config {
	return s.Client().Transport.(*http.Transport).TLSClientConfig
}

func FuzzOIDCClaims(f *testing.F) {
	p := newProvider(f)
	cfg := p.config()
	cfg.RequiredClaims = map[string]string{"hd": "corp"}
	o, err := authn.NewOIDC(cfg)
	if err != nil {
		f.Fatal(err)
	}
	o.Run(f.Context())
	f.Add(`"sub":"ann","hd":"corp","groups":["a"]`)
	f.Add(`"sub":1,"hd":null,"groups":{}`)
	f.Fuzz(func(t *testing.T, claims string) {
		payload := fmt.Sprintf(`{"iss":%q,"aud":"kubernetes","exp":%d,%s}`, p.URL, time.Now().Add(time.Hour).Unix(), claims)
		jws, err := p.signer.Sign([]byte(payload))
		if err != nil {
			t.Fatal(err)
		}
		token, err := jws.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		who, err := o.AuthenticateToken(t.Context(), nil, authn.Presented{Token: token})
		if err == nil && who != nil && !strings.HasPrefix(who.User.Name, p.URL+"#") {
			t.Fatalf("%s is %+v", claims, who.User)
		}
	})
}
