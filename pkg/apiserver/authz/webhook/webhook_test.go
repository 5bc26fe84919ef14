package webhook

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"

	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
	"podium/pkg/client/ttlcache"
)

const head = `"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview"`

// asking returns an authorizer whose webhook is answer.
func asking(t *testing.T, answer http.HandlerFunc) *Authorizer {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "webhook.conf")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],` +
		`"users":[{"name":"u","user":{"token":"secret"}}],"clusters":[{"name":"c","cluster":{"server":"` + server.URL + `/ask"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := New(Config{File: file, AllowedTTL: time.Minute, DeniedTTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func get(name string) *request.Info {
	return &request.Info{IsResource: true, Verb: "get", Version: "v1", Resource: "pods", Namespace: "a", Name: name}
}

var joe = &request.User{Name: "joe", Groups: []string{"devs"}, Extra: map[string][]string{"k": {"v"}}}

func TestWhatIsAskedAndAnswered(t *testing.T) {
	var asked authorizationv1.SubjectAccessReview
	answer := ""
	a := asking(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" || r.URL.Path != "/ask" {
			t.Errorf("%s with %q", r.URL.Path, r.Header.Get("Authorization"))
		}
		asked = authorizationv1.SubjectAccessReview{}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		fmt.Fprint(w, answer)
	})
	none := "the authorization webhook gave no answer"
	for name, row := range map[string]struct {
		answer string
		want   authz.Decision
		reason string
	}{
		"yes":     {`{` + head + `,"status":{"allowed":true,"reason":"ok"}}`, authz.Allow, "ok"},
		"no":      {`{` + head + `,"status":{"denied":true,"reason":"bad"}}`, authz.Deny, "bad"},
		"neither": {`{` + head + `,"status":{}}`, authz.NoOpinion, ""},
		"both":    {`{` + head + `,"status":{"allowed":true,"denied":true}}`, authz.NoOpinion, none},
		"nothing": {``, authz.NoOpinion, none},
		"another": {`{"apiVersion":"v1","kind":"Pod","status":{"allowed":true}}`, authz.NoOpinion, none},
		"endless": {`{` + head + `,"status":{"allowed":true,"reason":"` + strings.Repeat("x", 1<<20) + `"}}`, authz.NoOpinion, none},
	} {
		answer = row.answer
		if d, reason := a.Authorize(t.Context(), joe, get(name)); d != row.want || reason != row.reason {
			t.Errorf("%s: %v %.40q, want %v %q", name, d, reason, row.want, row.reason)
		}
		want := authorizationv1.SubjectAccessReviewSpec{
			User: "joe", Groups: []string{"devs"}, Extra: map[string]authorizationv1.ExtraValue{"k": {"v"}},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "a", Verb: "get", Version: "v1", Resource: "pods", Name: name},
		}
		if diff := cmp.Diff(want, asked.Spec); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestDecisionsAreCached(t *testing.T) {
	var calls atomic.Int32
	a := asking(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		fmt.Fprintf(w, `{%s,"status":{"allowed":%t}}`, head, review.Spec.ResourceAttributes.Name == "yes")
	})
	now := time.Unix(0, 0)
	a.cache = ttlcache.New[string, answer](maxAnswers, func() time.Time { return now })
	ask := func(name string, want int32) {
		t.Helper()
		a.Authorize(t.Context(), joe, get(name))
		if got := calls.Load(); got != want {
			t.Errorf("%d questions, want %d", got, want)
		}
	}
	ask("yes", 1)
	ask("yes", 1)
	ask("no", 2)
	ask("no", 2)
	now = now.Add(2 * time.Second)
	ask("no", 3)
	ask("yes", 3)
	now = now.Add(time.Minute)
	ask("yes", 4)
	ask("yes", 4)
	for i := range maxAnswers {
		a.cache.Put(fmt.Sprint(i), answer{}, time.Hour)
	}
	ask("yes", 5) // the cache was full
}

// A webhook that fails once is called again.
func TestAWebhookThatFailsOnce(t *testing.T) {
	var calls atomic.Int32
	a := asking(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, `{%s,"status":{"allowed":true}}`, head)
	})
	if d, _ := a.Authorize(t.Context(), joe, get("again")); d != authz.Allow || calls.Load() != 2 {
		t.Errorf("%v after %d calls", d, calls.Load())
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{` + head + `,"status":{"allowed":true}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if status, err := read(data); err == nil && status.Allowed && status.Denied {
			t.Error("yes and no")
		}
	})
}
