package streams_test

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"podium/pkg/apiserver/nodeproxy"
)

// page is the handler of a pod.
func page(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/ws":
		up := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
		c, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer c.Close()
		kind, data, err := c.ReadMessage()
		if err == nil {
			c.WriteMessage(kind, append([]byte("echo "), data...))
		}
	case "/html":
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, `<a href="/x?y=1">x</a><img src="rel.png"><a href='http://elsewhere/x'>e</a>`)
	case "/html.gz":
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		fmt.Fprint(z, `<form action="/post/"></form>`)
		z.Close()
	case "/redirect":
		http.Redirect(w, r, "/there", http.StatusFound)
	default:
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s auth=%q uri=%q", r.Method, r.URL.RequestURI(), body, r.Header.Get("Authorization"), r.Header.Get("X-Forwarded-Uri"))
	}
}

func (s *stack) call(t *testing.T, method, path string, header http.Header, body string) (int, http.Header, string) {
	t.Helper()
	req, _ := http.NewRequest(method, "https://"+apiAddress+path, strings.NewReader(body))
	if header != nil {
		req.Header = header
	}
	tr := &http.Transport{DialContext: s.net.dial, TLSClientConfig: &tls.Config{RootCAs: s.ca.pool}, DisableKeepAlives: true, DisableCompression: true}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

func TestProxies(t *testing.T) {
	s := newStack(t, &loopback{}, nil)
	defer s.close()
	s.serve("10.0.0.5:8080", nil, http.HandlerFunc(page))
	s.serve("10.0.0.5:8443", s.ca.server(t, "anything"), http.HandlerFunc(page))
	pod, svc := "/api/v1/namespaces/ns/pods/p", "/api/v1/namespaces/ns/services/svc"

	for _, method := range []string{"DELETE", "OPTIONS", "PATCH", "POST", "PUT", "GET"} {
		code, _, body := s.call(t, method, pod+"/proxy/a/b/?q=1", http.Header{"Authorization": {"Bearer secret"}}, "body")
		want := fmt.Sprintf(`%s /a/b/?q=1 body auth="" uri="%s/proxy/a/b/"`, method, pod)
		if code != 200 || body != want {
			t.Errorf("%s: %d %s, want %s", method, code, body, want)
		}
	}
	for _, tc := range []struct {
		path, want string
		code       int
	}{
		{pod + "/proxy/", "GET /", 200},
		{"/api/v1/namespaces/ns/pods/p:8080/proxy/x", "GET /x", 200},
		{"/api/v1/namespaces/ns/pods/http:p:8080/proxy/x", "GET /x", 200},
		{"/api/v1/namespaces/ns/pods/https:p:8443/proxy/x", "GET /x", 200},
		{svc + ":80/proxy/x", "GET /x", 200},
		{svc + ":web/proxy/x", "GET /x", 200},
		{"/api/v1/namespaces/ns/services/http:svc:web/proxy/x", "GET /x", 200},
		{"/api/v1/nodes/node-1/proxy/healthz", "ok", 200},
		{"/api/v1/nodes/node-1:10250/proxy/pods", `"kind":"PodList"`, 200},
		{pod + "/proxy", "", 301},
		{svc + ":81/proxy/x", "no service port 81 found for service", 503},
		{svc + ":none/proxy/x", `no endpoints available for service \"svc:none\"`, 503},
		{"/api/v1/namespaces/ns/pods/p:9/proxy/x", "error trying to reach service: dial 10.0.0.5:9: connection refused", 503},
		{"/api/v1/namespaces/ns/pods/a:b:c:d/proxy/x", "invalid pod request", 400},
		{"/api/v1/namespaces/ns/pods/q/proxy/x", `pods \"q\" not found`, 404},
	} {
		code, h, body := s.call(t, "GET", tc.path, nil, "")
		if code != tc.code || !strings.Contains(body, tc.want) {
			t.Errorf("%s: %d %s, want %d %s", tc.path, code, body, tc.code, tc.want)
		}
		if code == 301 && h.Get("Location") != tc.path+"/" {
			t.Errorf("redirected to %s", h.Get("Location"))
		}
	}
	for _, ip := range []string{"127.0.0.1", "::1", "169.254.169.254", "fe80::1", "224.0.0.1", "0.0.0.0", "::ffff:127.0.0.1", ""} {
		s.pods[0].Status.PodIPs[0].IP = ip
		if code, _, body := s.call(t, "GET", pod+"/proxy/x", nil, ""); code != 400 || !strings.Contains(body, "address not allowed") {
			t.Errorf("the proxy goes to %q: %d %s", ip, code, body)
		}
	}
}

func TestProxyRewritesLinks(t *testing.T) {
	s := newStack(t, &loopback{}, nil)
	defer s.close()
	s.serve("10.0.0.5:8080", nil, http.HandlerFunc(page))
	prefix := "/api/v1/namespaces/ns/pods/p/proxy"
	_, _, body := s.call(t, "GET", prefix+"/html", nil, "")
	if want := `<a href="` + prefix + `/x?y=1">x</a><img src="rel.png"><a href='http://elsewhere/x'>e</a>`; body != want {
		t.Errorf("got  %s\nwant %s", body, want)
	}
	_, h, packed := s.call(t, "GET", prefix+"/html.gz", http.Header{"Accept-Encoding": {"gzip"}}, "")
	z, err := gzip.NewReader(bytes.NewReader([]byte(packed)))
	if err != nil || h.Get("Content-Encoding") != "gzip" {
		t.Fatal(err, h)
	}
	if plain, _ := io.ReadAll(z); string(plain) != `<form action="`+prefix+`/post/"></form>` {
		t.Errorf("got %s", plain)
	}
	if code, h, _ := s.call(t, "GET", prefix+"/redirect", nil, ""); code != 302 || h.Get("Location") != prefix+"/there" {
		t.Errorf("redirected %d to %s", code, h.Get("Location"))
	}
	c := s.socket(t, prefix+"/ws", nil, "")
	defer c.Close()
	c.WriteMessage(websocket.TextMessage, []byte("hi"))
	if _, data, err := c.ReadMessage(); err != nil || string(data) != "echo hi" {
		t.Errorf("websocket: %q, %v", data, err)
	}
}

func TestAKubeletMustBeTheNodes(t *testing.T) {
	s := newStack(t, &loopback{}, nil)
	defer s.close()
	stranger := newAuthority(t)
	s.proxy = nodeproxy.New(nodeproxy.Config{Dial: s.net.dial, Authority: func() *x509.CertPool { return stranger.pool }})
	h := s.proxy.Streams().NodeProxy(&backend{s}, "", "node-1", "/pods")
	s.serve("api2:6443", nil, h)
	req, _ := http.NewRequest("GET", "http://api2:6443/api/v1/nodes/node-1/proxy/pods", nil)
	resp, err := (&http.Transport{DialContext: s.net.dial, DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if data, _ := io.ReadAll(resp.Body); resp.StatusCode != 503 || !strings.Contains(string(data), "certificate signed by unknown authority") {
		t.Errorf("a kubelet with another authority's certificate: %d %s", resp.StatusCode, data)
	}
}
