package authn_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
)

// tellTale authenticates every token as a user of that name.
func tellTale() authn.Authenticator {
	return authn.Bearer(authn.TokenFunc(func(_ context.Context, _ authn.Objects, p authn.Presented) (*authn.Identity, error) {
		return &authn.Identity{User: &request.User{Name: p.Token}}, nil
	}), nil, nil)
}

func TestATokenAsASubprotocol(t *testing.T) {
	const prefix = "base64url.bearer.authorization.k8s.io."
	coded := prefix + base64.RawURLEncoding.EncodeToString([]byte("secret"))
	for name, tc := range map[string]struct {
		upgrade, offered, user, left string
	}{
		"with another":    {"websocket", coded + ", v5.channel.k8s.io", "secret", "v5.channel.k8s.io"},
		"in between":      {"WebSocket", "a," + coded + ",b", "secret", "a,b"},
		"alone":           {"websocket", coded, "", coded},
		"twice":           {"websocket", coded + "," + coded + ",a", "", coded + "," + coded + ",a"},
		"not base64":      {"websocket", prefix + "!,a", "", prefix + "!,a"},
		"not a WebSocket": {"SPDY/3.1", coded + ",a", "", coded + ",a"},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header = http.Header{"Upgrade": {tc.upgrade}, "Sec-Websocket-Protocol": {tc.offered}}
			user, err := tellTale().Authenticate(r)
			if err != nil || (user != nil) != (tc.user != "") || user != nil && user.Name != tc.user {
				t.Fatalf("%+v, %v", user, err)
			}
			if left := r.Header.Get("Sec-Websocket-Protocol"); left != tc.left {
				t.Errorf("left: %s", left)
			}
		})
	}
}

func FuzzBearer(f *testing.F) {
	f.Add("Bearer x", "", "")
	f.Add("", "websocket", "base64url.bearer.authorization.k8s.io.eA,a")
	f.Fuzz(func(t *testing.T, header, upgrade, offered string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header = http.Header{"Authorization": {header}, "Upgrade": {upgrade}, "Sec-Websocket-Protocol": {offered}}
		user, err := tellTale().Authenticate(r)
		if err != nil || user != nil && user.Name == "" {
			t.Fatalf("%+v, %v", user, err)
		}
		if user != nil && !strings.HasPrefix(strings.ToLower(header), "bearer ") && strings.Contains(r.Header.Get("Sec-Websocket-Protocol"), "bearer.authorization") {
			t.Fatal("the token is handed on")
		}
	})
}
