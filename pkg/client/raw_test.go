package client_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"testing"

	"podium/pkg/client"
	"podium/pkg/scheme"
)

// A proxy that uses the client's transport adds the credentials, passes every status
// on, streams, and switches protocols.
func TestRoundTripper(t *testing.T) {
	next := make(chan string)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Upgrade") != "":
			conn, buf, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
			line, _ := buf.ReadString('\n')
			fmt.Fprint(conn, strings.ToUpper(line))
		case strings.HasSuffix(r.URL.Path, "/watch"):
			for text := range next {
				fmt.Fprintln(w, text)
				w.(http.Flusher).Flush()
			}
		default:
			body, _ := io.ReadAll(r.Body)
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprintf(w, "%s %s %s %s %s", r.Method, r.RequestURI, r.Header.Get("Authorization"), r.Header.Get("Impersonate-User"), body)
		}
	}))
	defer api.Close()
	c, err := client.New(scheme.New(), client.Config{
		Servers: []string{api.URL + "/base"}, Token: func() (string, error) { return "secret", nil }, Header: http.Header{"Impersonate-User": {"ann"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, Transport: c.RoundTripper(), FlushInterval: -1})
	defer front.Close()

	resp, err := http.Post(front.URL+"/a%2Fb?c=d%20e", "text/plain", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	got, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if want := "POST /base/a%2Fb?c=d%20e Bearer secret ann body"; resp.StatusCode != http.StatusTeapot || string(got) != want {
		t.Errorf("%d %q, want 418 %q", resp.StatusCode, got, want)
	}

	go func() { next <- "first" }() // the answer begins with the first line
	watch, err := http.Get(front.URL + "/watch")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(watch.Body)
	for _, want := range []string{"first", "second"} {
		if want == "second" {
			next <- want
		}
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("the watch has %q, want %q", lines.Text(), want)
		}
	}
	close(next)
	watch.Body.Close()
	upgrade(t, strings.TrimPrefix(front.URL, "http://"))
}

func upgrade(t *testing.T, address string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /exec HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: spdy/3.1\r\n\r\n")
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%+v, %v", resp, err)
	}
	fmt.Fprintln(conn, "hello")
	if line, err := r.ReadString('\n'); line != "HELLO\n" {
		t.Errorf("%q, %v", line, err)
	}
}
