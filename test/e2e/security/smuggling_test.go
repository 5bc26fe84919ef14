package security

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// smuggled is an HTTP/1.1 request that two programs on the way would interpret differently: one
// sees a second request where the other sees a body.
type smuggled struct {
	name string
	raw  string
	// codes are the allowed status codes; the first one is that of the request itself, the
	// others are those of what follows after the end of the body.
	codes []int
}

// smuggledRequests returns such requests with the token of an account. hidden is the request in
// them that must not be processed with that account's rights.
func smuggledRequests(path, token, hidden string) []smuggled {
	const refused = http.StatusBadRequest
	post := func(headers, body string) string {
		return "POST " + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + "\r\nContent-Type: application/json\r\n" + headers + "\r\n" + body
	}
	get := func(headers string) string {
		return "GET /version HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + "\r\n" + headers + "\r\n"
	}
	length := fmt.Sprint("Content-Length: ", len(hidden), "\r\n")
	const chunked = "Transfer-Encoding: chunked\r\n"
	only := []int{refused}
	unknown := []int{http.StatusNotImplemented, refused}
	return []smuggled{
		{"CL.CL: two lengths", post("Content-Length: 0\r\n"+length, hidden), only},
		{"CL.CL: the other order", post(length+"Content-Length: 0\r\n", hidden), only},
		{"CL.CL: a list", post(fmt.Sprintf("Content-Length: 0, %d\r\n", len(hidden)), hidden), only},
		{"length with a sign", post("Content-Length: +0\r\n", hidden), only},
		{"negative length", post("Content-Length: -1\r\n", hidden), only},
		{"length in hexadecimal", post("Content-Length: 0x0\r\n", hidden), only},
		{"length with an underscore", post("Content-Length: 0_0\r\n", hidden), only},
		{"length of no digits", post("Content-Length: \r\n", hidden), only},
		{"length that overflows", post("Content-Length: 18446744073709551616\r\n", hidden), only},
		{"space before the colon", post("Content-Length : 0\r\n", hidden), only},
		{"tab before the colon", post("Transfer-Encoding\t: chunked\r\n", "0\r\n\r\n"+hidden), only},
		{"TE.TE: chunked twice", post(chunked+chunked, "0\r\n\r\n"+hidden), unknown},
		{"TE.TE: a list", post("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"+hidden), unknown},
		{"TE.TE: identity first", post("Transfer-Encoding: identity, chunked\r\n", "0\r\n\r\n"+hidden), unknown},
		{"TE.TE: another name", post("Transfer-Encoding: xchunked\r\n", hidden), unknown},
		{"TE.TE: gzip", post("Transfer-Encoding: gzip\r\n", hidden), unknown},
		{"TE with a vertical tab", post("Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n"+hidden), unknown},
		{"TE with a carriage return", post("Transfer-Encoding: \rchunked\r\n", "0\r\n\r\n"+hidden), unknown},
		{"TE folded to a second line", post("Transfer-Encoding:\r\n chunked\r\n"+length, hidden), unknown},
		{"header folded to a second line", get("X: a\r\n Authorization: Bearer b\r\n"), []int{refused, 200}},
		{"first header begins with a space", "GET /version HTTP/1.1\r\n Host: x\r\n\r\n", only},
		{"chunk of no number", post(chunked, "zz\r\n"+hidden), only},
		{"chunk with a sign", post(chunked, "+0\r\n\r\n"+hidden), only},
		{"chunk with a prefix", post(chunked, "0x0\r\n\r\n"+hidden), only},
		{"chunk that overflows", post(chunked, "FFFFFFFFFFFFFFFFF\r\n"+hidden), only},
		{"chunk longer than it says", post(chunked, "1\r\n{X0\r\n\r\n"+hidden), only},
		{"chunk that ends in a bare return", post(chunked, "1\r{\r0\r\r"+hidden), only},
		{"chunk extension with a bare line feed", post(chunked, "2;x\n{}\r\n0;y\n\r\n"), []int{refused, 422}},
		{"chunk extension of a megabyte", post(chunked, "1;"+strings.Repeat("a", 1<<20)+"\r\n{\r\n0\r\n\r\n"), only},
		{"trailer that names a length", post(chunked+"Trailer: Content-Length\r\n", "0\r\nContent-Length: 40\r\n\r\n"), []int{refused, 422}},
		{"NUL in a value", get("X: a\x00b\r\n"), only},
		{"bare return in a value", get("X: a\rImpersonate-User: admin\r\n"), only},
		{"bare return in a name", get("X\r: a\r\n"), only},
		{"name with a space", get("X Y: z\r\n"), only},
		{"no name", get(": z\r\n"), only},
		{"no colon", get("X\r\n"), only},
		{"two hosts", get("Host: y\r\n"), only},
		{"no host", "GET /version HTTP/1.1\r\n\r\n", only},
		{"host with a path", "GET /version HTTP/1.1\r\nHost: a/b\r\n\r\n", only},
		{"host with a user", "GET /version HTTP/1.1\r\nHost: a b\r\n\r\n", only},
		{"no version", "GET /version\r\n\r\n", only},
		{"unknown version", "GET /version HTTP/9.9\r\nHost: x\r\n\r\n", []int{http.StatusHTTPVersionNotSupported, refused}},
		{"space in the method", "GE T /version HTTP/1.1\r\nHost: x\r\n\r\n", only},
		{"bare return in the target", "GET /version\rHTTP/1.1 HTTP/1.1\r\nHost: x\r\n\r\n", only},
		{"two spaces in the first line", "GET  /version HTTP/1.1\r\nHost: x\r\n\r\n", only},
		{"preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []int{http.StatusHTTPVersionNotSupported, refused, 401, 403}},
		{"header of two megabytes", get("X: " + strings.Repeat("a", 2<<20) + "\r\n"), []int{http.StatusRequestHeaderFieldsTooLarge}},
		{"100,000 headers", get(strings.Repeat("X: aaaaaaaaaaaa\r\n", 100_000)), []int{http.StatusRequestHeaderFieldsTooLarge}},
	}
}

// Each ambiguous request gets an error or one response, and the hidden request is not processed.
func TestSmuggledRequests(t *testing.T) {
	t.Parallel()
	ns, key := accountWith(t, everything)
	configmaps := "/api/v1/namespaces/" + ns + "/configmaps"
	const object = `{"metadata":{"name":"smuggled"}}`
	hidden := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", configmaps, key, len(object), object)
	const last = "GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	joe := bearer(t, key)
	for _, tc := range smuggledRequests(configmaps, key, hidden) {
		t.Run(tc.name, func(t *testing.T) {
			var codes []int
			for _, a := range responses(rawRequest(t, tc.raw+last)) {
				if a.body == "ok" { // the last request: the connection was still usable
					break
				}
				codes = append(codes, a.code)
			}
			if len(codes) == 0 || slices.ContainsFunc(codes, func(c int) bool { return !slices.Contains(tc.codes, c) }) {
				t.Errorf("answers %v, want of %v", codes, tc.codes)
			}
			if a := joe.do(t, "GET", configmaps+"/smuggled", ""); a.code != http.StatusNotFound {
				t.Errorf("the hidden request was carried out: %d", a.code)
				joe.must(t, "DELETE", configmaps+"/smuggled", "")
			}
		})
	}
	// With a length and chunks, the chunks take precedence (RFC 9112). What follows them is a
	// separate request, with its own credentials.
	for _, headers := range []string{"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n"} {
		text := "POST " + configmaps + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\nContent-Type: application/json\r\n" + headers + "\r\n0\r\n\r\n" +
			"GET " + configmaps + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
		for i, a := range responses(rawRequest(t, text)) {
			if a.code/100 == 2 {
				t.Errorf("%q: answer %d is %d %s", headers, i, a.code, a.body)
			}
		}
	}
}

// Headers by which some servers change the user, method or path have no effect.
func TestHeadersThatAreNotBelieved(t *testing.T) {
	t.Parallel()
	theirs := victim(t)
	_, key := accountWith(t, everything)
	path := "/api/v1/namespaces/" + theirs + "/secrets/victim"
	for _, headers := range []string{
		"Impersonate-User: kubernetes-admin\r\nImpersonate-Group: system:masters\r\n",
		"impersonate-user: kubernetes-admin\r\nIMPERSONATE-GROUP: system:masters\r\n",
		"Impersonate-Group: system:masters\r\n", "Impersonate-Uid: 1\r\n", "Impersonate-Extra-Scopes: x\r\n",
		"Impersonate_User: kubernetes-admin\r\n", "Impersonate-User:\r\nImpersonate-Group: system:masters\r\n",
		"Impersonate-User: system:serviceaccount:kube-system:generic-garbage-collector\r\n",
		"X-Remote-User: kubernetes-admin\r\nX-Remote-Group: system:masters\r\n",
		"X-Remote-User: kubernetes-admin\r\nX-Remote-Group: system:masters\r\nX-Remote-Extra-Scopes: x\r\n",
		"Authorization: Basic a3ViZXJuZXRlcy1hZG1pbjp4\r\n",
		"X-Forwarded-User: kubernetes-admin\r\n", "X-Forwarded-For: 127.0.0.1\r\nX-Real-Ip: 127.0.0.1\r\nForwarded: for=127.0.0.1\r\n",
		"X-Forwarded-Client-Cert: Subject=\"CN=kubernetes-admin,O=system:masters\"\r\n", "X-Ssl-Client-S-Dn: O=system:masters\r\n",
		"X-HTTP-Method-Override: POST\r\n", "X-Original-URL: /version\r\nX-Rewrite-URL: /version\r\n", "X-Forwarded-Prefix: /version/..\r\n",
	} {
		for _, first := range []string{"", "Authorization: Bearer " + key + "\r\n"} {
			text := rawRequest(t, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+first+headers+"\r\n")
			for _, a := range responses(text) {
				if a.code < 400 || a.code >= 500 || reveals(a.body) {
					t.Errorf("%q after %.20q: %d %s", headers, first, a.code, a.body)
				}
			}
		}
	}
}
