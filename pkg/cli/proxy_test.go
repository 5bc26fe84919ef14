package cli_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"podium/pkg/cli"
	"podium/pkg/client/kubeconfig"
)

// startProxy runs podium proxy until the test ends, and returns where it serves.
func startProxy(t *testing.T, args ...string) string {
	t.Helper()
	address, stop := serve(t)
	t.Cleanup(stop)
	config := filepath.Join(t.TempDir(), "kubeconfig")
	if err := kubeconfig.New("x", kubeconfig.Cluster{Server: "http://" + address}, kubeconfig.User{}).Write(config, 0o600); err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan int, 1)
	go func() {
		done <- cli.Main(ctx, cli.IO{Out: w, Err: io.Discard}, append([]string{"proxy", "--kubeconfig", config}, args...))
		w.Close()
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-done; code != 130 {
			t.Errorf("Ctrl-C: exit code %d, want 130", code)
		}
	})
	line, err := bufio.NewReader(r).ReadString('\n')
	at, ok := strings.CutPrefix(strings.TrimSpace(line), "Starting to serve on ")
	if err != nil || !ok {
		t.Fatalf("%q, %v", line, err)
	}
	return at
}

func TestProxy(t *testing.T) {
	at := startProxy(t, "--port=0", "--api-prefix=/k8s")
	if host, _, err := net.SplitHostPort(at); host != "127.0.0.1" || err != nil {
		t.Errorf("the proxy listens on %s: %v", at, err)
	}
	for path, want := range map[string]int{
		"/k8s/api/v1/namespaces/default":             http.StatusOK,
		"/k8s/api/v1/namespaces/none":                http.StatusNotFound,
		"/k8s/api/v1/namespaces/default/pods/p/exec": http.StatusForbidden,
		"/api/v1/namespaces":                         http.StatusNotFound,
	} {
		resp, err := http.Get("http://" + at + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
	watch, err := http.Get("http://" + at + "/k8s/api/v1/namespaces?watch=true&fieldSelector=metadata.name%3Ddefault")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	if line, err := bufio.NewReader(watch.Body).ReadString('\n'); err != nil || !strings.Contains(line, `"ADDED"`) {
		t.Errorf("the watch begins with %q, %v", line, err)
	}
}

func TestProxyOnASocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	if at := startProxy(t, "--unix-socket", socket); at != socket {
		t.Errorf("serves on %q, want %q", at, socket)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://localhost/version")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("status %d", resp.StatusCode)
	}
}
