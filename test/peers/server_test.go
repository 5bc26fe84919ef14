package peers

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"podium/pkg/cluster/pki"
)

// server is a kube-apiserver process that can be killed and started again on
// the same data and port.
type server struct {
	t    *testing.T
	dir  string
	port int
	cmd  *exec.Cmd
}

// startServer needs the binaries: `make build` puts them into bin/.
func startServer(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir(), port: freePort(t)}
	ca, err := pki.OpenAuthority(s.dir, "ca", time.Now)
	check(t, err)
	check(t, ca.Issue(s.dir, "apiserver", pki.Identity{Name: "kube-apiserver", Hosts: []string{"127.0.0.1"}}))
	check(t, ca.Issue(s.dir, "admin", pki.Identity{Name: "kubernetes-admin", Groups: []string{"system:masters"}}))
	check(t, pki.SigningKey(s.dir, "sa"))
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) file(name string) string { return filepath.Join(s.dir, name) }

func (s *server) start() {
	s.t.Helper()
	binary, err := filepath.Abs("../../bin/kube-apiserver")
	check(s.t, err)
	log, err := os.OpenFile(s.file("apiserver.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	check(s.t, err)
	defer log.Close()
	s.cmd = exec.Command(binary,
		"--data-dir="+s.file("etcd"), "--bind-address=127.0.0.1", "--advertise-address=192.0.2.10",
		fmt.Sprintf("--secure-port=%d", s.port),
		"--client-ca-file="+s.file("ca.crt"), "--tls-cert-file="+s.file("apiserver.crt"), "--tls-private-key-file="+s.file("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-signing-key-file="+s.file("sa.key"), "--service-account-key-file="+s.file("sa.pub"))
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("start %s (make build makes it): %v", binary, err)
	}
	client, err := rest.HTTPClientFor(s.config())
	check(s.t, err)
	deadline := time.Now().Add(30 * time.Second)
	for {
		resp, err := client.Get(s.url() + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
			err = fmt.Errorf("readyz says %s", resp.Status)
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(s.file("apiserver.log"))
			s.t.Fatalf("the apiserver is not ready: %v\n%s", err, text)
		}
		time.Sleep(10 * time.Millisecond) // a process outside: there is nothing to wait on but its answer
	}
}

// kill ends the process as a crash would: without a word.
func (s *server) kill() {
	if s.cmd == nil {
		return
	}
	s.cmd.Process.Kill()
	s.cmd.Wait()
	s.cmd = nil
}

func (s *server) url() string { return fmt.Sprintf("https://127.0.0.1:%d", s.port) }

func (s *server) config() *rest.Config {
	return &rest.Config{
		Host: s.url(), QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: s.file("ca.crt"), CertFile: s.file("admin.crt"), KeyFile: s.file("admin.key")},
	}
}

// client returns a client-go clientset, which speaks protobuf by its own choice.
func (s *server) client() kubernetes.Interface {
	s.t.Helper()
	c, err := kubernetes.NewForConfig(s.config())
	check(s.t, err)
	return c
}

// ownClient is a clientset that shares its connection with no other one.
func (s *server) ownClient() kubernetes.Interface {
	s.t.Helper()
	config := s.config()
	config.Dial = (&net.Dialer{}).DialContext // client-go keeps one transport a dialer
	c, err := kubernetes.NewForConfig(config)
	check(s.t, err)
	return c
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for a condition of the world outside this process; it may
// be called by any goroutine of the test.
func eventually(t *testing.T, ctx context.Context, what string, ok func() error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Errorf("%s: %v", what, err)
			return
		case <-tick.C:
		}
	}
}
