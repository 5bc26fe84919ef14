package security

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"podium/pkg/client"
)

// A token of a hundred years is shortened to one, with a warning.
func TestTokenLifetime(t *testing.T) {
	ns := space(t)
	body := `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":3153600000}}`
	answer, header, err := admin.Do(t.Context(), client.Request{
		Method: "POST", Path: "/api/v1/namespaces/" + ns + "/serviceaccounts/default/token", Body: []byte(body),
		Header: map[string][]string{"Content-Type": {"application/json"}, "Accept": {"application/json"}},
	})
	check(t, err)
	var out authenticationv1.TokenRequest
	check(t, json.NewDecoder(bytes.NewReader(answer)).Decode(&out))
	const year = 365 * 24 * time.Hour
	if left := time.Until(out.Status.ExpirationTimestamp.Time); left > year || left < year-time.Hour {
		t.Errorf("the token is good for %v, want a year", left)
	}
	want := "requested expiration of 3153600000 seconds shortened to 31536000 seconds"
	if warning := header.Get("Warning"); !strings.Contains(warning, want) {
		t.Errorf("the warning is %q, want %q", warning, want)
	}
}
