package operator

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"podium/test/e2e/blank"
	"podium/test/e2e/page"
)

// TestBehindALoadBalancer: machines and people know one address, which leads to
// whichever apiserver answers. With one of two gone a machine joins all the
// same, and kubectl, which knows no other address, goes on.
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
}

// balance listens on a host of this machine until the test ends, and forwards
// connections to the first of some hosts whose apiserver takes them.
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
