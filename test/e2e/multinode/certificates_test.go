package multinode

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"podium/pkg/client"
	"podium/pkg/cluster/pki"
	"podium/test/e2e/docked"
)

// pkiDir is where a machine's certificates are.
const pkiDir = "/etc/podium/pki"

var controlPlane = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"}

// sh runs a script on a node.
func sh(t *testing.T, node, script string) string {
	t.Helper()
	out, err := trySh(t.Context(), node, script)
	if err != nil {
		t.Fatalf("on %s: %v", node, err)
	}
	return out
}

func trySh(ctx context.Context, node, script string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", "exec", "--interactive", node, "bash", "-e", "-s")
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	return string(out), err
}

// year is the validity of certificates.
const year = 365 * 24 * time.Hour

// leaves returns the certificates of a control plane, without file extension.
func leaves(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(path, ".crt"); ok && !strings.HasSuffix(filepath.Base(name), "ca") {
			names = append(names, name)
		}
		return err
	})
	if err != nil || len(names) < 10 {
		t.Fatalf("%d certificates, %v", len(names), err)
	}
	return names
}

// ending replaces a certificate by one of the same identity that expires at end.
func ending(t *testing.T, dir, name string, end time.Time) {
	t.Helper()
	authority, signer := dir, "ca"
	if filepath.Base(name) == "kubelet-serving" {
		signer = "kubelet-ca"
	}
	if strings.HasPrefix(name, filepath.Join(dir, "etcd")+"/") || filepath.Base(name) == "apiserver-etcd-client" {
		authority = filepath.Join(dir, "etcd")
	}
	ca, err := pki.OpenAuthority(authority, signer, func() time.Time { return end.Add(-year) })
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(name + ".crt")
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	id := pki.Identity{Name: cert.Subject.CommonName, Groups: cert.Subject.Organization, Hosts: cert.DNSNames, Both: len(cert.ExtKeyUsage) > 1}
	for _, ip := range cert.IPAddresses {
		id.Hosts = append(id.Hosts, ip.String())
	}
	if err := ca.Renew(filepath.Dir(name), filepath.Base(name), id); err != nil {
		t.Fatal(err)
	}
}

// keysOf copies a control plane's keys and certificates to a temporary folder.
func keysOf(t *testing.T, node string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pki")
	if _, err := docked.Docker(t.Context(), "cp", node+":"+pkiDir, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// store replaces certificates on a node atomically.
func store(t *testing.T, node, dir string, names ...string) {
	t.Helper()
	if _, err := docked.Docker(t.Context(), "cp", dir, node+":/etc/podium/next"); err != nil {
		t.Fatal(err)
	}
	script := "trap 'rm -rf /etc/podium/next' EXIT\n"
	for _, name := range names {
		name = strings.TrimPrefix(name, dir+"/")
		script += fmt.Sprintf("mv /etc/podium/next/%s.key %s/%[1]s.key; mv /etc/podium/next/%[1]s.crt %[2]s/%[1]s.crt\n", name, pkiDir)
	}
	sh(t, node, script)
}

// served returns the expiry of the certificate that a server presents on a new connection.
func served(ctx context.Context, address string) (time.Time, error) {
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return time.Time{}, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].NotAfter, nil
}

// TestCertificatesNearTheirEnd checks that the timer's service renews certificates. The daemons
// start to use the new ones while they run, and keep working after the old ones have expired.
func TestCertificatesNearTheirEnd(t *testing.T) {
	for _, node := range []string{plane, worker1} {
		sh(t, node, "systemctl is-enabled podium-certs.timer; systemctl is-active podium-certs.timer; systemctl start podium-certs.service")
	}
	s := the.space(t)
	pids := func() string {
		return sh(t, plane, "systemctl show -p MainPID --value "+strings.Join(controlPlane, " "))
	}
	before, servers := pids(), map[string]string{"kube-apiserver": "6443", "etcd": "2379", "kubelet": "10250"}
	for name, port := range servers {
		servers[name] = net.JoinHostPort(s.Address(plane), port)
	}
	show := func(what string, good func(time.Time) bool) {
		for name, address := range servers {
			docked.Eventually(t, 15*time.Second, name+" shows "+what, func(ctx context.Context) error {
				end, err := served(ctx, address)
				if err == nil && !good(end) {
					err = fmt.Errorf("one that ends at %s", end)
				}
				return err
			})
		}
	}
	dir := keysOf(t, plane)
	all, end := leaves(t, dir), time.Now().Add(60*time.Second).Truncate(time.Second)
	for _, name := range all {
		ending(t, dir, name, end)
	}
	store(t, plane, dir, all...)
	show("the one that ends soon", end.Equal)
	if out := sh(t, plane, "podium certs check"); strings.Count(out, "expires soon: podium certs renew") != len(all) {
		t.Errorf("podium certs check does not say that %d end soon:\n%s", len(all), out)
	}
	out := sh(t, plane, "systemctl start podium-certs.service; journalctl -u podium-certs.service -o cat --no-pager")
	if got := strings.Count(out, " renewed, good until "); got != len(all) {
		t.Errorf("%d of %d were renewed:\n%s", got, len(all), out)
	}
	show("a new one", func(end time.Time) bool { return time.Until(end) > year/2 })
	if after := pids(); after != before {
		t.Errorf("daemons were started anew: %s, before %s", after, before)
	}
	select {
	case <-time.After(time.Until(end.Add(time.Second))):
	case <-t.Context().Done():
	}
	// All connections are replaced, with the certificates that the daemons have now.
	sh(t, plane, "systemctl restart etcd kube-apiserver")
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		s.renews("kube-system", name)
	}
	for _, node := range []string{plane, worker1, worker2} {
		s.renews("kube-node-lease", node)
		s.nodeIs(node, true, time.Minute)
	}
	the.Podium(t, "get", "--raw", "/api/v1/nodes/"+plane+"/proxy/healthz") // the API server as the kubelet's client
}

// renews waits until the holder of a Lease has renewed it after the call.
func (s *space) renews(namespace, name string) {
	s.T.Helper()
	begin := time.Now()
	docked.Eventually(s.T, time.Minute, "the Lease of "+name+" is renewed", func(ctx context.Context) error {
		lease, err := client.For[*coordinationv1.Lease](s.API).In(namespace).Get(ctx, name)
		if err != nil {
			return err
		}
		if lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Before(begin) {
			return fmt.Errorf("last at %s", lease.Spec.RenewTime)
		}
		return nil
	})
}

// TestExpiredCertificateIsReported checks that an expired certificate is reported and renewed.
func TestExpiredCertificateIsReported(t *testing.T) {
	dir := keysOf(t, plane)
	name := filepath.Join(dir, "admin")
	ending(t, dir, name, time.Now().Add(-time.Hour))
	store(t, plane, dir, name)
	out, err := trySh(t.Context(), plane, "podium certs check")
	if err == nil || !strings.Contains(out, "has expired: podium certs renew") || !strings.Contains(out, "1 of ") {
		t.Errorf("podium certs check: %v\n%s", err, out)
	}
	sh(t, plane, "systemctl start podium-certs.service; podium certs check; podium get nodes --kubeconfig /etc/podium/admin.conf")
}

// TestAKubeletThatWasOffForTooLong checks that the error says what to do, and that the machine
// joins again by that.
func TestAKubeletThatWasOffForTooLong(t *testing.T) {
	const current = "/var/lib/kubelet/pki/kubelet-client-current.pem"
	s := the.space(t)
	ca, err := pki.OpenAuthority(keysOf(t, plane), "ca", func() time.Time { return time.Now().Add(-year - time.Hour) })
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := ca.Issue(dir, "ended", pki.Identity{Name: "system:node:" + worker2, Groups: []string{"system:nodes"}}); err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := pki.Files(dir, "ended")
	cert, errCert := os.ReadFile(certFile)
	key, errKey := os.ReadFile(keyFile)
	if err := errors.Join(errCert, errKey); err != nil {
		t.Fatal(err)
	}
	sh(t, worker2, "systemctl stop kubelet\ncat > "+current+" <<'END'\n"+string(cert)+string(key)+"END\nsystemctl start --no-block kubelet\n")
	docked.Eventually(t, 20*time.Second, "the kubelet says what to do", func(ctx context.Context) error {
		out, err := trySh(ctx, worker2, "journalctl -u kubelet -n 20 -o cat --no-pager")
		for _, part := range []string{"has ended on", "podium token create --print-join-command"} {
			if err == nil && !strings.Contains(out, part) {
				err = fmt.Errorf("it does not say %q:\n%s", part, out)
			}
		}
		return err
	})
	out, err := trySh(t.Context(), worker2, "podium certs check")
	if err == nil || !strings.Contains(out, "has expired: join again with a new token") {
		t.Errorf("podium certs check: %v\n%s", err, out)
	}
	if out, err := trySh(t.Context(), worker2, "systemctl start podium-certs.service"); err == nil {
		t.Errorf("the timer's service does not fail:\n%s", out)
	}
	join, err := docked.Docker(t.Context(), "exec", plane, "podium", "token", "create", "--print-join-command")
	if err != nil {
		t.Fatal(err)
	}
	sh(t, worker2, join)
	s.nodeIs(worker2, true, time.Minute)
	sh(t, worker2, "podium certs check; test ! -e /etc/podium/bootstrap-kubelet.conf; systemctl start podium-certs.service")
}
