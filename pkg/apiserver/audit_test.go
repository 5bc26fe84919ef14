package apiserver_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/audit"
	"podium/pkg/scheme"
)

// auditEvent is the part of an audit event that the tests compare.
type auditEvent struct {
	Level, AuditID, Stage, RequestURI, Verb  string
	User                                     authenticationv1.UserInfo
	ImpersonatedUser                         *authenticationv1.UserInfo
	AuthenticationMetadata                   struct{ ImpersonationConstraint string }
	SourceIPs                                []string
	UserAgent                                string
	ObjectRef                                *struct{ Resource, Namespace, Name, APIGroup, APIVersion, Subresource string }
	ResponseStatus                           *metav1.Status
	RequestObject, ResponseObject            json.RawMessage
	RequestReceivedTimestamp, StageTimestamp metav1.MicroTime
	Annotations                              map[string]string
}

// journal is an audit backend that keeps all events.
type journal struct {
	mu    sync.Mutex
	lines [][]byte
}

func (j *journal) Write(_ context.Context, events [][]byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, events...)
	return nil
}

// take returns and removes the recorded events of requests to a path.
func (j *journal) take(t *testing.T, path string) []auditEvent {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []auditEvent
	for _, line := range j.lines {
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if strings.HasPrefix(e.RequestURI, path) {
			out = append(out, e)
		}
	}
	j.lines = nil
	return out
}

// recorded runs a server that records requests synchronously, by the given
// rules.
func recorded(t *testing.T, rules ...audit.Rule) (*world, *journal) {
	j := &journal{}
	w := start(t, func(c *apiserver.Config) {
		c.Audit = audit.New(audit.Config{
			Policy: &audit.Policy{Rules: rules, OmitManagedFields: true}, Scheme: c.Scheme, Log: slog.New(slog.DiscardHandler),
			Backends: []audit.BackendConfig{{Name: "journal", Backend: j, Mode: audit.ModeBlocking}},
		})
	})
	j.take(t, "")
	return w, j
}

func TestAuditOfARequest(t *testing.T) {
	w, j := recorded(t, audit.Rule{Level: audit.LevelMetadata})
	w.do("POST", cms+"?fieldManager=x", jsonType, configMap("x"), "User-Agent", "me/1", "X-Forwarded-For", "10.1.2.3", "Audit-Id", "my-id",
		"Impersonate-User", "joe", "Impersonate-Group", "system:masters")
	events := j.take(t, cms)
	if len(events) != 2 || events[0].Stage != "RequestReceived" || events[1].Stage != "ResponseComplete" {
		t.Fatalf("recorded %+v, want that it was received and that it was answered", events)
	}
	e := events[1]
	if e.RequestReceivedTimestamp.IsZero() || e.StageTimestamp.Time.Before(e.RequestReceivedTimestamp.Time) {
		t.Errorf("received at %v, this stage was at %v", e.RequestReceivedTimestamp, e.StageTimestamp)
	}
	got := []any{e.Level, e.AuditID, e.RequestURI, e.Verb, e.User.Username, e.ImpersonatedUser.Username, e.SourceIPs, e.UserAgent, e.ObjectRef.Resource, e.ObjectRef.Namespace, e.ObjectRef.Name,
		e.ObjectRef.APIVersion, e.ResponseStatus.Code, e.Annotations["authorization.k8s.io/decision"], e.RequestObject == nil, events[0].ImpersonatedUser == nil, events[0].ResponseStatus == nil}
	want := []any{"Metadata", "my-id", cms + "?fieldManager=x", "create", "admin", "joe", []string{"10.1.2.3", "192.0.2.1"}, "me/1", "configmaps", "default", "x",
		"v1", int32(201), "allow", true, true, true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAuditOfRefusals(t *testing.T) {
	w, j := recorded(t, audit.Rule{Level: audit.LevelMetadata})
	w.do("GET", cms+"/x", "", "", "X-User", "joe")
	e := j.take(t, cms)
	if len(e) != 2 || e[1].ResponseStatus.Code != 403 || e[1].ResponseStatus.Reason != "Forbidden" || e[1].ResponseStatus.Message == "" ||
		e[1].Annotations["authorization.k8s.io/decision"] != "forbid" || e[1].User.Username != "joe" {
		t.Errorf("of who may not: %+v", e)
	}
	w.do("GET", cms+"/absent", "", "")
	if e = j.take(t, cms); len(e) != 2 || e[1].ResponseStatus.Code != 404 || e[1].Annotations["authorization.k8s.io/decision"] != "allow" {
		t.Errorf("of what is not there: %+v", e)
	}
}

func TestAuditOfAStream(t *testing.T) {
	w, j := recorded(t, audit.Rule{Level: audit.LevelRequestResponse})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	rec := httptest.NewRecorder()
	go func() {
		defer close(done)
		w.handler.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, "GET", cms+"?watch=1&timeoutSeconds=60", nil))
	}()
	var stages []string
	for len(stages) < 2 {
		for _, e := range j.take(t, cms) {
			stages = append(stages, e.Stage)
		}
		time.Sleep(time.Millisecond) // outside a synctest bubble there is nothing to wait on
	}
	cancel()
	<-done
	for _, e := range j.take(t, cms) {
		stages = append(stages, e.Stage)
		if e.ResponseObject != nil {
			t.Errorf("the stream is in the record: %s", e.ResponseObject)
		}
	}
	if diff := cmp.Diff([]string{"RequestReceived", "ResponseStarted", "ResponseComplete"}, stages); diff != "" {
		t.Errorf("stages (-want +got):\n%s", diff)
	}
}

func TestAuditOfBodies(t *testing.T) {
	w, j := recorded(t, audit.Rule{Level: audit.LevelRequestResponse})
	proto, err := scheme.New().Encode(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Data: map[string]string{"a": "1"}}, scheme.Protobuf)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		method, path, contentType, body string
		request, response               string // parts of the bodies
	}{
		{"POST", cms, jsonType, configMap("j"), `"data":{"a":"1"}`, `"uid"`},
		{"POST", cms, protoType, string(proto), `"data":{"a":"1"}`, `"uid"`},
		{"PATCH", cms + "/j", mergeType, `{"data":{"b":"2"}}`, `{"data":{"b":"2"}}`, `"b":"2"`},
		{"PATCH", cms + "/y?fieldManager=m", applyType, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\ndata: {a: \"1\"}\n", `"data":{"a":"1"}`, `"uid"`},
		{"GET", cms, "", "", "", `"items"`},
		{"GET", cms + "/y", "", "", "", `"name":"y"`},
		{"DELETE", cms + "/j", "", "", "", `"Success"`},
	} {
		for _, accept := range []string{jsonType, protoType} {
			if accept == protoType && row.method != "GET" {
				continue
			}
			w.do(row.method, row.path, row.contentType, row.body, "Accept", accept)
			e := j.take(t, cms)
			if len(e) != 2 {
				t.Fatalf("%s %s: %d events", row.method, row.path, len(e))
			}
			if !strings.Contains(string(e[1].RequestObject), row.request) || !strings.Contains(string(e[1].ResponseObject), row.response) {
				t.Errorf("%s %s, answered as %s: recorded %s and %s, want %s and %s", row.method, row.path, accept, e[1].RequestObject, e[1].ResponseObject, row.request, row.response)
			}
			if bytes.Contains(e[1].ResponseObject, []byte("managedFields")) {
				t.Errorf("%s %s: the managed fields are recorded: %s", row.method, row.path, e[1].ResponseObject)
			}
		}
	}
}

// TestAuditOmitsSecrets sends confidential data in every way that the API
// has, under a policy that records everything, and checks that no event
// contains it.
func TestAuditOmitsSecrets(t *testing.T) {
	const hidden = "do-not-tell-8531"
	encoded := base64.StdEncoding.EncodeToString([]byte(hidden))
	w, j := recorded(t, audit.Rule{Level: audit.LevelRequestResponse})
	proto, err := scheme.New().Encode(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Data: map[string][]byte{"a": []byte(hidden)}}, scheme.Protobuf)
	if err != nil {
		t.Fatal(err)
	}
	const tokens = "/api/v1/namespaces/default/serviceaccounts/default/token"
	for _, row := range [][4]string{
		{"POST", secrets, jsonType, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"},"data":{"a":"` + encoded + `"}}`},
		{"POST", secrets, protoType, string(proto)},
		{"POST", secrets, jsonType, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"t"},"type":"` + hidden + ` ","data":{"` + hidden + `/":"` + encoded + `"}}`},
		{"PUT", secrets + "/s", jsonType, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"},"stringData":{"b":"` + hidden + `"}}`},
		{"PATCH", secrets + "/s", mergeType, `{"stringData":{"c":"` + hidden + `"}}`},
		{"PATCH", secrets + "/s", jsonPatch, `[{"op":"test","path":"/data/a","value":"` + hidden + `"}]`},
		{"PATCH", secrets + "/y?fieldManager=m", applyType, "apiVersion: v1\nkind: Secret\nmetadata: {name: y}\nstringData: {a: " + hidden + "}\n"},
		{"GET", secrets + "/s", "", ""},
		{"GET", secrets, "", ""},
		{"GET", "/api/v1/secrets", "", ""},
		{"POST", cms, jsonType, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"},"data":{"a":"` + encoded + `"}}`},
		{"POST", tokens, jsonType, `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","spec":{"audiences":["` + hidden + `"]}}`},
		{"POST", "/apis/authentication.k8s.io/v1/tokenreviews", jsonType, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","spec":{"token":"` + hidden + `"}}`},
		{"GET", cms + "?access_token=" + hidden, "", ""},
		{"DELETE", secrets + "/s", "", ""},
		{"DELETE", secrets, "", ""},
	} {
		w.do(row[0], row[1], row[2], row[3], "Authorization", "Bearer "+hidden, "Cookie", hidden, "Sec-WebSocket-Protocol", hidden)
		j.mu.Lock()
		lines := bytes.Join(j.lines, []byte("\n"))
		j.lines = nil
		j.mu.Unlock()
		if !bytes.Contains(lines, []byte(`"auditID"`)) {
			t.Errorf("%s %s: nothing is recorded", row[0], row[1])
		}
		for _, text := range []string{hidden, encoded} {
			if bytes.Contains(lines, []byte(text)) {
				t.Errorf("%s %s: it is told:\n%s", row[0], row[1], lines)
			}
		}
	}
}
