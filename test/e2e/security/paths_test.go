package security

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
)

// spellings lead from the namespace M, where the caller has all permissions, to the secret
// "victim" of the namespace T, if a part of the server interprets the path differently from the
// authorizer.
var spellings = []string{
	"/api/v1/namespaces/T/secrets/victim",
	"/api/v1/namespaces/M/../T/secrets/victim",
	"/api/v1/namespaces/M/secrets/../../T/secrets/victim",
	"/api/v1/namespaces/M/secrets/x/../../../T/secrets/victim",
	"/api/v1/namespaces/M/./../T/./secrets/victim",
	"/api/v1/namespaces/M/%2e%2e/T/secrets/victim",
	"/api/v1/namespaces/M/%2E%2E/T/secrets/victim",
	"/api/v1/namespaces/M/.%2e/T/secrets/victim",
	"/api/v1/namespaces/M/%252e%252e/T/secrets/victim",
	"/api/v1/namespaces/M/..%2fT/secrets/victim",
	"/api/v1/namespaces/M%2f..%2fT/secrets/victim",
	"/api/v1/namespaces/M/..%2FT%2Fsecrets%2Fvictim",
	"/api/v1/namespaces/M/..%252fT/secrets/victim",
	"/api/v1/namespaces/M/..%5cT/secrets/victim",
	"/api/v1/namespaces/M/..%c0%afT/secrets/victim",
	"/api/v1/namespaces/M/%c0%ae%c0%ae/T/secrets/victim",
	"/api/v1/namespaces/M/%e2%80%a5/T/secrets/victim",
	"/api/v1/namespaces/M/%ef%bc%8e%ef%bc%8e/T/secrets/victim",
	"/api/v1/namespaces/M/..;/T/secrets/victim",
	"/api/v1/namespaces/M;/../T/secrets/victim",
	"/api/v1/namespaces/M/..%00/T/secrets/victim",
	"/api/v1/namespaces/M%00/secrets/victim",
	"/api/v1/namespaces/T%00M/secrets/victim",
	"/api/v1/namespaces/T%20/secrets/victim",
	"/api/v1/namespaces/T%0a/secrets/victim",
	"/api/v1/namespaces/T%0d%0aHost:%20x/secrets/victim",
	"/api/v1/namespaces/T./secrets/victim",
	"/api/v1/namespaces/t/secrets/victim",
	"/api/v1/namespaces/M,T/secrets/victim",
	"/api/v1/namespaces/*/secrets/victim",
	"/api/v1/namespaces/M/secrets/T%2fvictim",
	"/api/v1/namespaces/M/secrets/..%2f..%2fT%2fsecrets%2fvictim",
	"/api/v1/namespaces/M/secrets/..%2fT%2fvictim",
	"/api/v1/namespaces//T/secrets/victim",
	"/api/v1/namespaces/M//../T/secrets/victim",
	"//api/v1/namespaces/T/secrets/victim",
	"/api//v1/namespaces/T/secrets/victim",
	"/api/v1/namespaces/T/secrets//victim",
	"/api/v1/namespaces/T//secrets/victim",
	"/api/v1/namespaces/T/secrets/victim/",
	"/api/v1/namespaces/T/secrets/victim/.",
	"/api/v1/namespaces/T/secrets/victim//",
	"/api/v1/namespaces/T/secrets/",
	"/api/v1/namespaces/T/Secrets/victim",
	"/API/v1/namespaces/T/secrets/victim",
	"/api/V1/Namespaces/T/SECRETS/victim",
	"/./api/v1/namespaces/T/secrets/victim",
	"/healthz/../api/v1/namespaces/T/secrets/victim",
	"/version/../api/v1/namespaces/T/secrets/victim",
	"/openapi/v2/../../api/v1/namespaces/T/secrets/victim",
	"/openapi/..%2fapi/v1/namespaces/T/secrets/victim",
	"/api/v1/watch/namespaces/T/secrets/victim",
	"/api/v1/watch/namespaces/M/../T/secrets/victim",
	"/api/v1/watch/watch/namespaces/T/secrets/victim",
	"/api/v1/proxy/namespaces/T/secrets/victim",
	"/api/v1/proxy/namespaces/M/services/x/../../../../T/secrets/victim",
	"/api/v1/namespaces/M/services/x/proxy/../../../../T/secrets/victim",
	"/api/v1/namespaces/M/services/kubernetes/proxy/api/v1/namespaces/T/secrets/victim",
	"/api/v1/namespaces/M/pods/x/proxy/../../../../T/secrets/victim",
	"/api/v1/secrets/victim",
	"/api/v1/secrets",
	"/api/v1/secrets?namespace=T",
	"/api/v1/namespaces/M/secrets?namespace=T",
	"/api/v1/namespaces/M/secrets?fieldSelector=metadata.namespace%3DT",
	"/api/v1/namespaces/M/secrets/victim?namespace=T",
	"/api/v1/namespaces/M/secrets?labelSelector=%2e%2e/T",
	"/api/v1/namespaces/T/secrets/victim?pretty=true&watch=1",
	"/apis//v1/namespaces/T/secrets/victim",
	"/apis/core/v1/namespaces/T/secrets/victim",
	"/apis/v1/namespaces/T/secrets/victim",
	"/apis/../api/v1/namespaces/T/secrets/victim",
	"/api/v1/namespaces/T/secrets/victim/status",
	"/api/v1/namespaces/T/secrets/victim%3f",
	"/api/v1/namespaces/T/secrets/victim%23",
	"/api/v1/namespaces/T/secrets/victim;a=b",
	"/api/v1/namespaces/T/secrets/%76ictim",
	"/api/v1/namespaces/T/%73ecrets/victim",
	"/api/v1/%6eamespaces/T/secrets/victim",
}

// No spelling of a path reveals what the caller may not read, over HTTP/1.1 with the path sent
// unchanged and over HTTP/2.
func TestPathSpellings(t *testing.T) {
	t.Parallel()
	theirs := victim(t)
	mine, key := accountWith(t, everything)
	joe := bearer(t, key)
	joe.must(t, "GET", "/api/v1/namespaces/"+mine+"/secrets", "")
	if a := administrator(t).do(t, "GET", "/api/v1/namespaces/"+theirs+"/secrets/victim", ""); !reveals(a.body) {
		t.Fatalf("the administrator does not see the secret either: this test would prove nothing: %s", a.body)
	}
	expand := strings.NewReplacer("/M", "/"+mine, "/T", "/"+theirs, "fT", "f"+theirs, "cT", "c"+theirs, "DT", "D"+theirs, "=T", "="+theirs, ",T", ","+theirs, "0M", "0"+mine)
	for _, spelling := range spellings {
		path := expand.Replace(spelling)
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			body := ""
			if method == "POST" || method == "PUT" || method == "PATCH" {
				body = `{"metadata":{"name":"victim"}}`
			}
			text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: close\r\nContent-Type: application/merge-patch+json\r\nContent-Length: %d\r\n\r\n%s", method, path, key, len(body), body)
			spelledOut(t, "HTTP/1.1 "+method+" "+path, rawRequest(t, text))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		a, err := joe.send(ctx, "GET", path, "")
		cancel()
		if reveals(a.body) || err == nil && a.code >= 500 {
			t.Errorf("HTTP/2 %s: %d %s", path, a.code, a.body)
		}
	}
	administrator(t).must(t, "GET", "/api/v1/namespaces/"+theirs+"/secrets/victim", "")
}

// spelledOut checks the response to one spelling.
func spelledOut(t *testing.T, what, text string) {
	t.Helper()
	if reveals(text) {
		t.Errorf("%s shows the secret: %s", what, text)
	}
	for _, a := range responses(text) {
		if to := a.header.Get("Location"); strings.HasPrefix(to, "//") || strings.Contains(to, "://") {
			t.Errorf("%s leads to another server: %s", what, to)
		}
		if a.code >= 500 && a.code != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %s", what, a.code, a.body)
		}
		if a.header.Get("Host") != "" {
			t.Errorf("%s: the path has put a header into the answer", what)
		}
	}
}

// A stream to a container needs the verb create, also if a WebSocket starts as a GET: an account
// with read permission only cannot run commands.
func TestExecByGet(t *testing.T) {
	t.Parallel()
	ns, key := accountWith(t, permit("get list watch", "pods pods/exec pods/attach pods/portforward pods/proxy pods/log services services/proxy"))
	administrator(t).must(t, "POST", "/api/v1/namespaces/"+ns+"/pods", `{"metadata":{"name":"p"},"spec":{"terminationGracePeriodSeconds":0,"containers":[{"name":"c","image":"localhost/podium/busybox:v1","command":["sleep","3600"]}]}}`)
	joe := bearer(t, key).overHTTP1(t)
	joe.must(t, "GET", "/api/v1/namespaces/"+ns+"/pods/p", "")
	node := certified(t, stolen(t, "kube-scheduler")).overHTTP1(t)
	for _, stream := range []string{"exec?command=id&stdout=1", "exec?command=id&stdout=1&container=c", "attach?stdout=1&stdin=1", "portforward?ports=80"} {
		path := "/api/v1/namespaces/" + ns + "/pods/p/" + stream
		for name, header := range map[string][]string{
			"WebSocket":             {"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol", "v5.channel.k8s.io"},
			"WebSocket, upper case": {"Connection", "upgrade", "Upgrade", "WEBSOCKET", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol", "v4.channel.k8s.io"},
			"SPDY":                  {"Connection", "Upgrade", "Upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "v4.channel.k8s.io"},
			"plain":                 nil,
			"method in a header":    {"X-HTTP-Method-Override", "POST"},
		} {
			for _, method := range []string{"GET", "POST", "HEAD", "OPTIONS"} {
				for who, c := range map[string]*caller{"a reader": joe, "the scheduler": node} {
					if a := c.do(t, method, path, "", header...); a.code != http.StatusForbidden && a.code != http.StatusMethodNotAllowed {
						t.Errorf("%s by %s, %s of %s: %d, want 403: %.200s", stream, method, name, who, a.code, a.body)
					}
				}
			}
		}
	}
	// The same account with the verb create: the request gets further.
	grant(t, ns, rbacv1.PolicyRule{APIGroups: []string{""}, Verbs: []string{"create"}, Resources: []string{"pods/exec"}})
	if a := joe.do(t, "GET", "/api/v1/namespaces/"+ns+"/pods/p/exec?command=id&stdout=1", ""); a.code == http.StatusForbidden {
		t.Errorf("with the right to create it is forbidden, too: %s", a.body)
	}
}
