package machine

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestTokenOptions(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const text = "abcdef.0123456789abcdef"
	spec, err := TokenOptions{Token: text, TTL: time.Hour, Description: "for the new rack"}.spec(now)
	if err != nil {
		t.Fatal(err)
	}
	if spec.Token.String() != text || !spec.Expires.Equal(now.Add(time.Hour)) || spec.Groups[0] != nodeTokenGroup || len(spec.Usages) != 2 {
		t.Errorf("got %+v", spec)
	}
	forever, err := TokenOptions{Token: "zzzzzz.0123456789abcdef"}.spec(now)
	if err != nil || !forever.Expires.IsZero() {
		t.Errorf("a token for ever ends at %s, %v", forever.Expires, err)
	}
	if made, err := (TokenOptions{}).spec(now); err != nil || made.ID == "" {
		t.Errorf("a new one: %v, %v", made.ID, err)
	}
	for name, bad := range map[string]TokenOptions{
		"ended before it begins": {TTL: -time.Hour},
		"a group of others":      {Groups: []string{"system:masters"}},
		"no token":               {Token: "abcdef.TOOSHORT"},
	} {
		if _, err := bad.spec(now); err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "TOOSHORT") {
			t.Errorf("the complaint shows the secret: %v", err)
		}
	}
	damaged := forever.ToSecret()
	damaged.Name = "bootstrap-token-aaaaaa"
	var out strings.Builder
	printTokens(&out, []*corev1.Secret{spec.ToSecret(), forever.ToSecret(), damaged}, now.Add(2*time.Hour))
	for _, part := range []string{"abcdef   <expired>", "zzzzzz   <forever>", "aaaaaa   <invalid>", "for the new rack"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("%q is not in\n%s", part, out.String())
		}
	}
	if strings.Contains(out.String(), "0123456789abcdef") {
		t.Error("the list shows secrets")
	}
}
