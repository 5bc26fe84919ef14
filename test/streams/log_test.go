package streams_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/client"
)

const logPath = "/api/v1/namespaces/ns/pods/p/log"

func TestLogs(t *testing.T) {
	s := newStack(t, &loopback{}, nil)
	defer s.close()
	s.runtime.logPath = filepath.Join(t.TempDir(), "0.log")
	os.WriteFile(s.runtime.logPath, []byte("2026-01-02T15:04:05.1Z stdout F one\n2026-01-02T15:04:06.1Z stderr F two\n"), 0o600)
	get := func(query string) (string, error) {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := s.client.Do(t.Context(), client.Request{Path: logPath, Query: q})
		return string(data), err
	}
	for _, tc := range []struct {
		query, want string
		code        int
	}{
		{"container=c", "one\ntwo\n", 200},
		{"container=c&tailLines=1", "two\n", 200},
		{"container=c&limitBytes=5&timestamps=false", "one\nt", 200},
		{"container=c&timestamps=1&tailLines=1", "2026-01-02T15:04:06.100000000Z two\n", 200},
		{"container=c&sinceTime=2026-01-02T15:04:06Z", "two\n", 200},
		{"container=c&stream=Stdout", "one\n", 200},
		{"", "a container name must be specified for pod p, choose one of: [c tty new]", 400},
		{"container=x", "container x is not valid for pod p", 400},
		{"container=new", `container "new" in pod "p" is waiting to start: ContainerCreating`, 400},
		{"container=c&previous=true", `previous terminated container "c" in pod "p" not found`, 400},
		{"container=c&tailLines=-1", "tailLines: Invalid value: -1: must be greater than or equal to 0", 422},
		{"container=c&limitBytes=0", "limitBytes: Invalid value: 0: must be greater than 0", 422},
		{"container=c&sinceSeconds=1&sinceTime=2026-01-02T15:04:06Z", "at most one of `sinceTime` or `sinceSeconds` may be specified", 422},
	} {
		got, err := get(tc.query)
		if tc.code == 200 {
			if err != nil || got != tc.want {
				t.Errorf("%s: got %q, %v", tc.query, got, err)
			}
			continue
		}
		var status apierrors.APIStatus
		if !errors.As(err, &status) || int(status.Status().Code) != tc.code || !strings.Contains(status.Status().Message, tc.want) {
			t.Errorf("%s: got %v, want %d %s", tc.query, err, tc.code, tc.want)
		}
	}
	s.pods[0].Spec.NodeName = ""
	if got, err := get("container=c"); got != "" || err != nil {
		t.Errorf("a pod without a node: %q, %v", got, err)
	}
}

func TestLogsAsTheyCome(t *testing.T) {
	s := newStack(t, &loopback{}, nil)
	defer s.close()
	s.runtime.logPath = filepath.Join(t.TempDir(), "0.log")
	f, err := os.Create(s.runtime.logPath)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fmt.Fprint(f, "2026-01-02T15:04:05.1Z stdout F one\n")
	resp, err := s.client.Stream(t.Context(), client.Request{Path: logPath, Query: url.Values{"container": {"c"}, "follow": {"true"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	buf := make([]byte, 4)
	if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != "one\n" {
		t.Fatalf("got %q, %v", buf, err)
	}
	fmt.Fprint(f, "2026-01-02T15:04:05.1Z stdout F two\n")
	if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != "two\n" {
		t.Fatalf("got %q, %v", buf, err)
	}
	s.runtime.mu.Lock()
	s.runtime.ended = true
	s.runtime.mu.Unlock()
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("after its end: %q, %v", rest, err)
	}
}

// socket returns a third-party WebSocket client.
func (s *stack) socket(t *testing.T, path string, query url.Values, protocol string) *websocket.Conn {
	t.Helper()
	d := websocket.Dialer{NetDialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return s.net.dial(ctx, network, address)
	},
		TLSClientConfig: &tls.Config{RootCAs: s.ca.pool}}
	if protocol != "" {
		d.Subprotocols = []string{protocol}
	}
	c, resp, err := d.Dial("wss://"+apiAddress+path+"?"+query.Encode(), http.Header{})
	if err != nil {
		t.Fatalf("%v, %+v", err, resp)
	}
	if c.Subprotocol() != protocol {
		t.Errorf("the server speaks %q", c.Subprotocol())
	}
	return c
}

func TestLogsOverWebSocket(t *testing.T) {
	s := newStack(t, &loopback{}, nil)
	defer s.close()
	s.runtime.logPath = filepath.Join(t.TempDir(), "0.log")
	os.WriteFile(s.runtime.logPath, []byte("2026-01-02T15:04:05.1Z stdout F hello\n"), 0o600)
	for _, protocol := range []string{"binary.k8s.io", "base64.binary.k8s.io", ""} {
		c := s.socket(t, logPath, url.Values{"container": {"c"}}, protocol)
		var got strings.Builder
		for {
			_, data, err := c.ReadMessage()
			if err != nil {
				if !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
					t.Errorf("%s: it ends with %v", protocol, err)
				}
				break
			}
			got.Write(data)
		}
		want := "hello\n"
		if protocol == "base64.binary.k8s.io" {
			want = base64.StdEncoding.EncodeToString([]byte(want))
		}
		if got.String() != want {
			t.Errorf("%s: got %q", protocol, got.String())
		}
		c.Close()
	}
}

// The older subprotocols, which the conformance suite and dashboards use.
func TestExecOverOlderWebSockets(t *testing.T) {
	s := newStack(t, &loopback{}, func(p *process) int {
		line := make([]byte, 5)
		io.ReadFull(p.stdin, line)
		fmt.Fprintf(p.stdout, "got %s", line)
		return 2
	})
	defer s.close()
	for protocol, want := range map[string]struct{ in, out, status string }{
		"channel.k8s.io":           {"\x00hello", "\x01got hello", "\x03command terminated with non-zero exit code: 2"},
		"":                         {"\x00hello", "\x01got hello", "\x03command terminated with non-zero exit code: 2"},
		"v4.channel.k8s.io":        {"\x00hello", "\x01got hello", "\x03{"},
		"base64.channel.k8s.io":    {"0aGVsbG8=", "1Z290IGhlbGxv", "3Y29t"},
		"v4.base64.channel.k8s.io": {"0aGVsbG8=", "1Z290IGhlbGxv", "3eyJ"},
	} {
		c := s.socket(t, execPath, url.Values{"container": {"c"}, "command": {"x"}, "stdin": {"1"}, "stdout": {"1"}}, protocol)
		if err := c.WriteMessage(websocket.BinaryMessage, []byte(want.in)); err != nil {
			t.Fatal(err)
		}
		var messages []string
		for {
			_, data, err := c.ReadMessage()
			if err != nil {
				if !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
					t.Errorf("%s: it ends with %v", protocol, err)
				}
				break
			}
			if len(data) > 1 {
				messages = append(messages, string(data))
			}
		}
		if len(messages) != 2 || messages[0] != want.out || !strings.HasPrefix(messages[1], want.status) {
			t.Errorf("%s: got %q, want %q, %q...", protocol, messages, want.out, want.status)
		}
		c.Close()
	}
}

func TestKubeletTrustsOnlyTheApiserver(t *testing.T) {
	s := newStack(t, &loopback{}, nil)
	defer s.close()
	get := func(path string, cert *tls.Certificate) int {
		cfg := &tls.Config{RootCAs: s.ca.pool, ServerName: "node-1"}
		if cert != nil {
			cfg.Certificates = []tls.Certificate{*cert}
		}
		tr := &http.Transport{DialContext: s.net.dial, TLSClientConfig: cfg, DisableKeepAlives: true}
		resp, err := (&http.Client{Transport: tr}).Get("https://" + kubeletAddress + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	stranger := s.ca.client(t, "system:node:other", "system:nodes")
	admin := s.ca.client(t, "apiserver", "system:masters")
	for _, tc := range []struct {
		path string
		cert *tls.Certificate
		want int
	}{
		{"/healthz", nil, 401}, {"/healthz", admin, 200}, {"/pods", nil, 401}, {"/exec/ns/p/c", nil, 401}, {"/pods", stranger, 403}, {"/pods", admin, 200},
		{"/stats/summary", admin, 200}, {"/runningpods/", admin, 200}, {"/metrics", stranger, 403}, {"/debug/pprof/", admin, 404},
		{"/exec/ns/p/c?command=x&output=1", admin, 400}, {"/metrics/resource", admin, 200}, {"/metrics/cadvisor", stranger, 403},
	} {
		if got := get(tc.path, tc.cert); got != tc.want {
			t.Errorf("%s with %v: %d, want %d", tc.path, tc.cert != nil, got, tc.want)
		}
	}
}
