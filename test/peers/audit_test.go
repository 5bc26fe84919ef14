package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"podium/pkg/apiserver/audit"
	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

type lines [][]byte

func (l *lines) Write(_ context.Context, events [][]byte) error {
	*l = append(*l, events...)
	return nil
}

// TestAuditEventsAreUpstreams decodes every form of our events with upstream's
// type: it knows every field, and writes the same again.
func TestAuditEventsAreUpstreams(t *testing.T) {
	var out lines
	a := audit.New(audit.Config{
		Policy: &audit.Policy{Rules: []audit.Rule{{Level: audit.LevelRequestResponse}}}, Scheme: scheme.New(), Log: slog.New(slog.DiscardHandler),
		Backends: []audit.BackendConfig{{Name: "peer", Backend: &out, Mode: audit.ModeBlocking}},
	})
	ann := &request.User{Name: "ann", UID: "u-1", Groups: []string{"a", "b"}, Extra: map[string][]string{"scopes": {"x", "y"}}}
	for _, row := range []struct {
		method, path, body string
		user, as           *request.User
		end                func(*audit.Trail)
	}{
		{"POST", "/api/v1/namespaces/n/configmaps?x=%22", `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c"}}`, ann, &request.User{Name: "joe"}, func(tr *audit.Trail) {
			tr.Decided(true, "a role \"x\"\n")
			tr.Started(201, http.Header{"Content-Type": {"application/json"}})
			tr.Sent([]byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c","uid":"1"}}`))
			tr.Ended(201)
		}},
		{"GET", "/apis/apps/v1/namespaces/n/deployments/d/status", "", ann, nil, func(tr *audit.Trail) {
			tr.Decided(false, "")
			tr.Failed(&metav1.Status{Status: "Failure", Code: 403, Reason: "Forbidden", Message: "no", Details: &metav1.StatusDetails{Name: "d", Kind: "deployments"}})
			tr.Started(403, http.Header{})
			tr.Ended(403)
		}},
		{"GET", "/api/v1/pods?watch=1", "", ann, nil, func(tr *audit.Trail) { tr.Started(200, http.Header{}); tr.Ended(200) }},
		{"GET", "/healthz", "", nil, nil, func(tr *audit.Trail) { tr.Ended(401) }},
		{"GET", "/version", "", ann, nil, func(tr *audit.Trail) { tr.Panicked() }},
	} {
		r := httptest.NewRequest(row.method, row.path, strings.NewReader(row.body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("User-Agent", "peer/1 <\u2028>")
		req := request.New(request.Parse(r), http.Header{})
		req.AuditID = "id-1"
		trail, err := a.Begin(r, req, row.user, time.Now())
		check(t, err)
		if _, err := bytes.NewBuffer(nil).ReadFrom(r.Body); err != nil {
			t.Fatal(err)
		}
		req.User = row.user
		if row.as != nil {
			req.User = row.as
		}
		req.Annotate("pod-security.kubernetes.io/enforce-policy", "privileged:latest")
		row.end(trail)
	}
	if len(out) < 8 {
		t.Fatalf("only %d events", len(out))
	}
	for _, line := range out {
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		var event auditv1.Event
		if err := d.Decode(&event); err != nil {
			t.Errorf("%v in %s", err, line)
			continue
		}
		again, err := json.Marshal(&event)
		check(t, err)
		var first, second map[string]any
		check(t, json.Unmarshal(line, &first))
		check(t, json.Unmarshal(again, &second))
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("upstream writes it otherwise (-ours +theirs):\n%s", diff)
		}
	}
}
