package operator

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"podium/pkg/client/kubeconfig"
	"podium/test/e2e/blank"
	"podium/test/e2e/page"
)

// TestBehindALoadBalancer: machines and users have a single address, which leads to any API
// server that answers. When one of two is down, a machine can still join, and kubectl, which
// has no other address, keeps working.
func TestBehindALoadBalancer(t *testing.T) {
	image, deb := needs(t)
	network := blank.Network(t)
	gateway := strings.TrimSpace(blank.Docker(t, "network", "inspect", network, "--format", "{{(index .IPAM.Config 0).Gateway}}"))
	first, second, worker := blank.Boot(t, image, network, "first"), blank.Boot(t, image, network, "second"), blank.Boot(t, image, network, "worker")
	address := balance(t, gateway, blank.Address(t, first), blank.Address(t, second))
	for _, o := range []*page.Operator{first, second, worker} {
		o.Put(deb, "/podium.deb")
		o.Run("dpkg -i /podium.deb")
	}

	first.Run("podium init --control-plane-endpoint " + address)
	second.Run(strings.TrimSpace(first.Run("podium certs upload")))
	join := strings.TrimSpace(first.Run("podium token create --print-join-command"))
	if !strings.Contains(join, "podium join "+address+" ") {
		t.Errorf("machines are told to join by another address: %s", join)
	}
	first.Run("systemctl stop kube-apiserver")
	worker.Run(join)

	config := filepath.Join(t.TempDir(), "admin.conf")
	if err := os.WriteFile(config, []byte(first.Ask("cat /etc/podium/admin.conf")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(abs(t, "../../../bin/peers/kubectl"), "--kubeconfig", config, "wait", "node", "--all", "--for=condition=Ready", "--timeout=60s").CombinedOutput()
	if err != nil || strings.Count(string(out), "condition met") != 3 {
		t.Errorf("kubectl through the load balancer (hack/peers brings it): %v\n%s", err, out)
	}

	first.Run("systemctl start kube-apiserver")
	second.Run("cp /etc/podium/admin.conf /root/leaked.conf\npodium certs renew\npodium certs revoke /root/leaked.conf\npodium certs check | grep -A1 REVOKED | grep kubernetes-admin")
	refused(t, second.Ask("cat /root/leaked.conf"), "https://"+blank.Address(t, first)+":6443/api/v1/nodes", "https://"+blank.Address(t, worker)+":10250/pods")
}

// refused waits until a kubeconfig's certificate, revoked on another machine, is refused on all
// these pages.
func refused(t *testing.T, config string, pages ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "leaked.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := kubeconfig.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	user := loaded.User(loaded.Context(loaded.CurrentContext).User)
	pair, err := tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}, DisableKeepAlives: true}
	for _, page := range pages {
		code := 0
		for end := time.Now().Add(30 * time.Second); code != http.StatusUnauthorized && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			resp, err := (&http.Client{Transport: tr}).Get(page)
			if err != nil {
				continue // the server is being started
			}
			code = resp.StatusCode
			resp.Body.Close()
		}
		if code != http.StatusUnauthorized {
			t.Errorf("a certificate that was revoked on another machine gets %d at %s", code, page)
		}
	}
}

// balance listens on a host address of this machine until the test ends, and forwards
// connections to the first of some hosts whose API server accepts them.
func balance(t *testing.T, host string, to ...string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // the end
			}
			go forward(conn, to)
		}
	}()
	return l.Addr().String()
}

func forward(client net.Conn, to []string) {
	defer client.Close()
	for _, host := range to {
		server, err := net.Dial("tcp", net.JoinHostPort(host, "6443"))
		if err != nil {
			continue
		}
		defer server.Close()
		go func() {
			_, _ = io.Copy(server, client)
			server.Close()
		}()
		_, _ = io.Copy(client, server)
		return
	}
}
