package apiserver_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
)

// sesame is a secret that none of the requests below may reveal.
const sesame = "sesame"

// guarded runs a server with a secret in the namespace "theirs" and a user joe,
// who may do everything in the namespace "mine" and nothing else.
func guarded(t *testing.T, change ...func(*apiserver.Config)) *world {
	t.Helper()
	known := authn.Func(func(r *http.Request) (*request.User, error) {
		switch r.Header.Get("Authorization") {
		case "Bearer joe":
			return &request.User{Name: "joe", Groups: []string{authn.Authenticated}}, nil
		case "Bearer admin":
			return &request.User{Name: "admin", Groups: []string{authn.Masters}}, nil
		}
		return &request.User{Name: "nobody"}, nil
	})
	rules := authz.Func(func(_ context.Context, u *request.User, info *request.Info) (authz.Decision, string) {
		if u.In(authn.Masters) || u.Name == "joe" && info.IsResource && info.Namespace == "mine" || info.Path == "/readyz" {
			return authz.Allow, ""
		}
		return authz.NoOpinion, ""
	})
	change = append(change, func(cfg *apiserver.Config) { cfg.Authenticator, cfg.Authorizer = known, rules })
	w := start(t, change...)
	for _, ns := range []string{"mine", "theirs"} {
		must[any](w, 201, "POST", "/api/v1/namespaces", jsonType, `{"metadata":{"name":"`+ns+`"}}`, "Authorization", "Bearer admin")
	}
	must[any](w, 201, "POST", "/api/v1/namespaces/theirs/configmaps", jsonType, `{"metadata":{"name":"victim"},"data":{"open":"`+sesame+`"}}`, "Authorization", "Bearer admin")
	must[any](w, 201, "POST", "/api/v1/namespaces/mine/configmaps", jsonType, configMap("own"), "Authorization", "Bearer joe")
	return w
}

// Requests that a proxy and the server might parse differently get an error,
// and do not reveal a request hidden behind them.
func TestSmuggledRequests(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := guarded(t, func(cfg *apiserver.Config) { cfg.Listener = l })
	const victim = "/api/v1/namespaces/theirs/configmaps/victim"
	const hidden = "GET " + victim + " HTTP/1.1\r\nHost: x\r\n\r\n"
	const last = "GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	post := func(headers, body string) string {
		return "POST /api/v1/namespaces/mine/configmaps HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer joe\r\nContent-Type: application/json\r\n" + headers + "\r\n" + body
	}
	get := func(path, headers string) string {
		return "GET " + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer joe\r\n" + headers + "\r\n"
	}
	for _, tc := range []struct {
		name, reason, raw string
		codes             []int // of all responses, in order
	}{
		{"two lengths", "which of them holds is anybody's guess", post("Content-Length: 0\r\nContent-Length: 55\r\n", hidden), []int{400}},
		{"a length and chunks", "the chunks hold; what follows stands on its own", post("Content-Length: 80\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"+hidden), []int{400, 403}},
		{"chunks and a length of nothing", "", post("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", "0\r\n\r\n"+hidden), []int{400, 403}},
		{"chunks that are not quite", "", post("Transfer-Encoding: xchunked\r\n", hidden), []int{501}},
		{"chunks twice", "", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"+hidden), []int{400, 501}},
		{"chunks after something", "", post("Transfer-Encoding: identity, chunked\r\n", "0\r\n\r\n"+hidden), []int{501}},
		{"chunks with a tab", "", post("Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n"+hidden), []int{400, 501}},
		{"a length with a sign", "", post("Content-Length: +0\r\n", hidden), []int{400}},
		{"a length below nothing", "", post("Content-Length: -1\r\n", hidden), []int{400}},
		{"a length in hex", "", post("Content-Length: 0x10\r\n", hidden), []int{400}},
		{"a list of lengths", "", post("Content-Length: 0, 55\r\n", hidden), []int{400}},
		{"a space before the colon", "some take it for another name", post("Content-Length : 55\r\n", hidden), []int{400}},
		{"a name with a space", "", get("/version", "X Y: z\r\n"), []int{400}},
		{"a name of nothing", "", get("/version", ": z\r\n"), []int{400}},
		{"a value with a NUL", "", get("/version", "X: a\x00b\r\n"), []int{400}},
		{"a value with a return", "", get("/version", "X: a\rAuthorization: Bearer admin\r\n"), []int{400}},
		{"two hosts", "", get("/version", "Host: y\r\n"), []int{400}},
		{"no host", "", "GET /version HTTP/1.1\r\n\r\n", []int{400}},
		{"a host with a path", "", "GET /version HTTP/1.1\r\nHost: a/b\r\n\r\n", []int{400}},
		{"a version to come", "", "GET " + victim + " HTTP/9.9\r\nHost: x\r\n\r\n", []int{505}},
		{"no version", "", "GET " + victim + "\r\n\r\n", []int{400}},
		{"a method with a space", "", "GE T " + victim + " HTTP/1.1\r\nHost: x\r\n\r\n", []int{400}},
		{"a line in the target", "", "GET /version\rHTTP/1.1 HTTP/1.1\r\nHost: x\r\n\r\n", []int{400}},
		{"a chunk too large", "", post("Transfer-Encoding: chunked\r\n", "FFFFFFFFFFFFFFFFF\r\n"+hidden), []int{400}},
		{"a chunk of no number", "", post("Transfer-Encoding: chunked\r\n", "zz\r\n"+hidden), []int{400}},
		{"a chunk that ends early", "", post("Transfer-Encoding: chunked\r\n", "1\r\n{X0\r\n\r\n"+hidden), []int{400}},
		{"a great header", "", get("/version", "X: "+strings.Repeat("a", 2<<20)+"\r\n"), []int{431}},
		{"10^5 headers", "", get("/version", strings.Repeat("X: aaaaaaaaaaaa\r\n", 100_000)), []int{431}},
		{"another host's address", "what counts is the path", get("http://elsewhere"+victim, ""), []int{403}},
		{"HTTP/2 without TLS", "", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []int{505, 400, 405}},
		{"a header in the path", "no header of the answer comes from it", get("/api/v1/namespaces/mine/configmaps/x%0d%0aSet-Cookie:%20a=b", ""), []int{404}},
		{"a user to be", "only who may be somebody else is", get(victim, "Impersonate-User: admin\r\nImpersonate-Group: system:masters\r\n"), []int{403}},
		{"a proxy's user", "only a proxy is believed", get(victim, "X-Remote-User: admin\r\nX-Remote-Group: system:masters\r\n"), []int{403}},
		{"two users", "", get(victim, "Authorization: Bearer admin\r\n"), []int{403}},
		{"another method", "a header does not change it", get(victim, "X-HTTP-Method-Override: DELETE\r\n"), []int{403}},
		{"another path", "nor that", get("/version", "X-Original-URL: "+victim+"\r\nX-Rewrite-URL: "+victim+"\r\n"), []int{403}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(10 * time.Second))
			go io.WriteString(conn, tc.raw+last) // the server may close before it has read all
			var text strings.Builder
			in := bufio.NewReader(io.TeeReader(conn, &text))
			var codes []int
			for {
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					break
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if string(body) == "ok" { // the response to the last request, on a connection that is still open
					break
				}
				codes = append(codes, resp.StatusCode)
				if resp.Header.Get("Set-Cookie") != "" {
					t.Error("the request has put a header into the answer")
				}
			}
			if strings.Contains(text.String(), sesame) {
				t.Errorf("it brings the secret to light: %s", text.String())
			}
			if len(codes) == 0 || slices.ContainsFunc(codes, func(c int) bool { return !slices.Contains(tc.codes, c) }) {
				t.Errorf("answers %v, want of %v; %s: %.300s", codes, tc.codes, tc.reason, text.String())
			}
		})
	}
	must[any](w, 200, "GET", victim, "", "", "Authorization", "Bearer admin")
}

// No spelling of a path leads joe from the namespace that he may use to
// another: the path that is authorized is the path that is served.
func TestPathsAreReadOnce(t *testing.T) {
	w := guarded(t)
	r := rand.New(rand.NewPCG(1, 0))
	parts := []string{"..", ".", "", "mine", "theirs", "victim", "own", "configmaps", "namespaces", "api", "v1", "%2e%2e", "..%2f", "%2f", ";", "..;", "*", "watch", "proxy", "status", "%00", "Theirs", "theirs%2fconfigmaps%2fvictim"}
	codes := map[int]int{}
	for range 500 {
		path := "/api/v1/namespaces/mine"
		if r.IntN(3) == 0 {
			path += "/configmaps"
		}
		for range r.IntN(8) {
			path += "/" + parts[r.IntN(len(parts))]
		}
		if r.IntN(2) == 0 {
			path += "/../../theirs/configmaps/victim"
		}
		if r.IntN(8) == 0 {
			path = "/" + path
		}
		req, err := http.NewRequest("GET", "http://x"+path, nil)
		if err != nil {
			continue
		}
		req.Header.Set("Authorization", "Bearer joe")
		rec := httptest.NewRecorder()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // some of the paths are watches
		w.handler.ServeHTTP(rec, req.WithContext(ctx))
		cancel()
		codes[rec.Code]++
		if strings.Contains(rec.Body.String(), sesame) {
			t.Errorf("%s shows the secret: %s", path, rec.Body)
		}
		if rec.Code >= 500 {
			t.Errorf("%s: %d %s", path, rec.Code, rec.Body)
		}
	}
	if codes[403]+codes[404] == 0 {
		t.Errorf("answers %v: the test tries nothing", codes)
	}
}

// Text from a request body that is returned in Warning headers stays within its
// header line.
func TestWarningsAreOneLineEach(t *testing.T) {
	w := start(t)
	rec := w.do("POST", cms, jsonType, `{"metadata":{"name":"y"},"a\r\nSet-Cookie: b":1,`+strings.TrimPrefix(keys(5000, `"unknown-field-%d":1`), "{"))
	size := 0
	for _, v := range rec.Header()["Warning"] {
		if strings.ContainsAny(v, "\r\n") {
			t.Errorf("a warning of two lines: %q", v)
		}
		size += len(v)
	}
	if rec.Code != 201 || size == 0 || size > 8<<10 {
		t.Errorf("%d with %d bytes of warnings, want some, and not more than a client takes", rec.Code, size)
	}
	if rec.Header().Get("Set-Cookie") != "" {
		t.Error(fmt.Sprint("the body has made a header: ", rec.Header()))
	}
}
