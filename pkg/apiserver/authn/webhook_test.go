package authn_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
	"podium/pkg/client"
)

func webhookAt(s *httptest.Server) func(t testing.TB, version string, ttl time.Duration, now ...func() time.Time) *authn.Webhook {
	return func(t testing.TB, version string, ttl time.Duration, now ...func() time.Time) *authn.Webhook {
		cfg := authn.WebhookConfig{
			Service: client.Config{Servers: []string{s.URL + "/authenticate"}, TLS: clientTrust(s)}, Version: version, CacheTTL: ttl, Audiences: []string{"https://us"},
		}
		if len(now) > 0 {
			cfg.Now = now[0]
		}
		w, err := authn.NewWebhook(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
}

func TestWebhook(t *testing.T) {
	const secret = "the-token-itself"
	user := `"user":{"username":"ann","uid":"7","groups":["ops"],"extra":{"a":["b"]}}`
	ann := &request.User{Name: "ann", UID: "7", Groups: []string{"ops", "system:authenticated"}, Extra: map[string][]string{"a": {"b"}}}
	for name, tc := range map[string]struct {
		version, status string
		code            int
		want            *request.User
		bad             bool
	}{
		"v1":                        {version: "v1", status: `{"authenticated":true,` + user + `}`, want: ann},
		"v1beta1":                   {version: "v1beta1", status: `{"authenticated":true,` + user + `}`, want: ann},
		"for us":                    {version: "v1", status: `{"authenticated":true,"audiences":["https://us"],` + user + `}`, want: ann},
		"for others":                {version: "v1", status: `{"authenticated":true,"audiences":["vault"],` + user + `}`, bad: true},
		"unknown":                   {version: "v1", status: `{"authenticated":false}`},
		"refused":                   {version: "v1", status: `{"authenticated":false,"error":"the token ` + secret + ` is stolen"}`, bad: true},
		"known, yet without a name": {version: "v1", status: `{"authenticated":true}`, bad: true},
		"no answer":                 {version: "v1", status: `"` + secret, bad: true},
		"an error":                  {version: "v1", status: `{}`, code: 500, bad: true},
		"sent elsewhere":            {version: "v1", status: `{}`, code: 307, bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var asked authenticationv1.TokenReview
				if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.Spec.Token != secret || asked.APIVersion != "authentication.k8s.io/"+tc.version {
					t.Errorf("asked %+v, %v", asked, err)
				}
				w.Header().Set("Location", "https://example.invalid/")
				if tc.code != 0 {
					w.WriteHeader(tc.code)
				}
				fmt.Fprintf(w, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/%s","spec":{"token":%q},"status":%s}`, tc.version, secret, tc.status)
			}))
			defer s.Close()
			who, err := webhookAt(s)(t, tc.version, 0).AuthenticateToken(t.Context(), nil, authn.Presented{Token: secret, Audiences: []string{"https://us"}})
			if (err != nil) != tc.bad {
				t.Fatal(err)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
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

func TestTheWebhookIsNotAskedTwice(t *testing.T) {
	var asked atomic.Int64
	down := false
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if down {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,"user":{"username":"ann"}}}`)
	}))
	defer s.Close()
	now := time.Now()
	hook := webhookAt(s)(t, "v1", time.Minute, func() time.Time { return now })
	ask := func(token, audience string) error {
		_, err := hook.AuthenticateToken(t.Context(), nil, authn.Presented{Token: token, Audiences: []string{audience}})
		return err
	}
	steps := []struct {
		token, audience string
		later           time.Duration
		down            bool
		asked           int64
	}{
		{"a", "https://us", 0, false, 1},
		{"a", "https://us", 30 * time.Second, false, 1},
		{"b", "https://us", 0, false, 2},
		{"a", "https://us", time.Minute, false, 3},
		{"c", "https://us", 0, true, 6},  // three attempts
		{"c", "https://us", 0, false, 7}, // failures are not cached
		{"a", "https://us", 0, true, 7},  // results are cached
	}
	for i, step := range steps {
		now, down = now.Add(step.later), step.down
		err := ask(step.token, step.audience)
		if asked.Load() != step.asked || (err != nil) != (step.down && i == 4) {
			t.Fatalf("step %d: asked %d times, want %d (%v)", i, asked.Load(), step.asked, err)
		}
	}
}

// An unresponsive service blocks requests for at most ten seconds, and only a
// limited number of them. Then the result is ErrUnavailable.
func TestAWebhookThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook, err := authn.NewWebhook(authn.WebhookConfig{
			Service: client.Config{Servers: []string{"https://hook"}, Transport: hanging{}}, Version: "v1", CacheTTL: time.Minute, Audiences: []string{"us"},
		})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var waited, refused atomic.Int64
		var all sync.WaitGroup
		for range 300 {
			all.Go(func() {
				_, err := hook.AuthenticateToken(t.Context(), nil, authn.Presented{Token: "x", Audiences: []string{"us"}})
				switch {
				case err == nil:
					t.Error("known by a service that says nothing")
				case time.Since(began) == 0:
					refused.Add(1)
				default:
					waited.Add(1)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took != 10*time.Second || waited.Load() != 200 || refused.Load() != 100 {
			t.Errorf("after %v: %d have waited, %d were refused", took, waited.Load(), refused.Load())
		}
	})
}

type hanging struct{}

func (hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func FuzzWebhookAnswer(f *testing.F) {
	f.Add(`{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,"user":{"username":"ann"}}}`)
	f.Add(`{"status":[]}`)
	f.Fuzz(func(t *testing.T, body string) {
		hook, err := authn.NewWebhook(authn.WebhookConfig{
			Service: client.Config{Servers: []string{"https://hook"}, Transport: answering(body)}, Version: "v1", Audiences: []string{"us"},
		})
		if err != nil {
			t.Fatal(err)
		}
		who, err := hook.AuthenticateToken(t.Context(), nil, authn.Presented{Token: "x", Audiences: []string{"us"}})
		if err == nil && who != nil && who.User.Name == "" {
			t.Fatalf("%q makes a user without a name", body)
		}
	})
}

// answering is a service that always returns the same response.
type answering string

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	rec.WriteString(string(a))
	return rec.Result(), nil
}
