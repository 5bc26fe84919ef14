package machine

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestTokens(t *testing.T) {
	seen := map[Token]bool{}
	for range 50 {
		made, err := NewToken()
		if err != nil || seen[made] {
			t.Fatalf("%v, %v", made.ID, err)
		}
		seen[made] = true
		if again, err := ParseToken(made.String()); err != nil || again != made {
			t.Errorf("%s: %v", made.ID, err)
		}
	}
	for _, text := range []string{"", "abcdef", "abcdef.short", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcdef0", "abcdef:0123456789abcdef"} {
		if _, err := ParseToken(text); err == nil {
			t.Errorf("%q was taken for a token", text)
		} else if len(text) > 7 && strings.Contains(err.Error(), text[7:]) {
			t.Errorf("the complaint shows the secret: %v", err)
		}
	}
}

func TestTokenSecrets(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	token := Token{"abcdef", "0123456789abcdef"}
	s, err := TokenOptions{Token: token, TTL: time.Hour, Description: "for the new rack"}.secret(now)
	if err != nil {
		t.Fatal(err)
	}
	if s.Name != "bootstrap-token-abcdef" || s.Type != "bootstrap.kubernetes.io/token" || string(s.Data["expiration"]) != "2026-03-01T13:00:00Z" ||
		string(s.Data["auth-extra-groups"]) != nodeTokenGroup {
		t.Errorf("got %s of type %s with %q in %q", s.Name, s.Type, s.Data["expiration"], s.Data["auth-extra-groups"])
	}
	forever, err := TokenOptions{Token: token}.secret(now)
	if err != nil || forever.Data["expiration"] != nil {
		t.Errorf("a token for ever ends at %q, %v", forever.Data["expiration"], err)
	}
	for _, bad := range []TokenOptions{{Token: token, TTL: -time.Hour}, {Token: token, Groups: []string{"system:masters"}}} {
		if _, err := bad.secret(now); err == nil {
			t.Errorf("accepted: TTL %s, groups %v", bad.TTL, bad.Groups)
		}
	}
	var out strings.Builder
	printTokens(&out, []*corev1.Secret{s, forever}, now.Add(2*time.Hour))
	for _, part := range []string{"<expired>", "<forever>", "for the new rack"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("%q is not in\n%s", part, out.String())
		}
	}
	if strings.Contains(out.String(), token.Secret) {
		t.Error("the list shows secrets")
	}
}
