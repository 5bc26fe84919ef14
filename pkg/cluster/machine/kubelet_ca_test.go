package machine

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"podium/pkg/cluster/machine/upgrade"
	"podium/pkg/cluster/pki"
	"podium/pkg/version"
)

// earlier turns a control plane into one of an earlier version, in which the
// cluster CA signs the kubelets' serving certificates.
func earlier(t *testing.T, m *machine) {
	t.Helper()
	for _, name := range []string{kubeletCA + ".crt", kubeletCA + ".key", kubeletBundle} {
		if err := os.Remove(m.at(pkiDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	ca, err := m.authority(clusterCA)
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Renew(m.at(pkiDir), kubeletServing, pki.Identity{Name: "system:node:" + m.Node, Groups: []string{"system:nodes"}, Hosts: []string{m.Node, m.NodeIP}}); err != nil {
		t.Fatal(err)
	}
}

func readCert(t *testing.T, m *machine, name string) *x509.Certificate {
	t.Helper()
	cert, err := pki.ReadCertificate(m.at(pkiDir), name)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func issuer(t *testing.T, m *machine, name string) string {
	t.Helper()
	return readCert(t, m, name).Issuer.CommonName
}

func trusted(t *testing.T, m *machine) (names []string) {
	t.Helper()
	data, err := os.ReadFile(m.at(pkiDir, kubeletBundle))
	if err != nil {
		t.Fatal(err)
	}
	certs, err := pki.ParseCertificates(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range certs {
		names = append(names, c.Subject.CommonName)
	}
	return names
}

// A kubelet's serving certificate must not be valid for clients of the API
// server: the node chooses the names in it.
func TestKubeletsServingCertificatesHaveTheirOwnCA(t *testing.T) {
	host, cfg := newHost(t)
	m, err := newMachine(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.identities(); err != nil {
		t.Fatal(err)
	}
	ca, err := m.authority(clusterCA)
	if err != nil {
		t.Fatal(err)
	}
	if ca.Signed(readCert(t, m, kubeletServing)) || !ca.Signed(readCert(t, m, "apiserver")) {
		t.Error("the cluster's CA signs the wrong ones")
	}
	if got := strings.Join(trusted(t, m), " "); got != kubeletCA {
		t.Errorf("the API server trusts kubelets by %s", got)
	}
	if got := m.apiserver().conf["kubeletCertificateAuthority"]; got != pkiFile(kubeletBundle) {
		t.Errorf("the API server reads %v", got)
	}
	if got := m.controllerManager().conf["clusterSigningKubeletServingKeyFile"]; got != pkiFile("kubelet-ca.key") {
		t.Errorf("kube-controller-manager signs with %v", got)
	}
}

// Only etcd's certificates, which another CA signs, are valid for both a server
// and a client.
func TestNoCertificateIsAServersAndAClients(t *testing.T) {
	host, cfg := newHost(t)
	m, err := newMachine(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.identities(); err != nil {
		t.Fatal(err)
	}
	for _, c := range m.controlPlaneCertificates() {
		if usages := readCert(t, m, c.name).ExtKeyUsage; (len(usages) > 1) != (c.authority == etcdCA && len(c.id.Hosts) > 0) {
			t.Errorf("%s may be used for %v", c.name, usages)
		}
	}
}

// When all kubelets have moved, the upgrade of the last control plane leaves
// only the new CA in the bundle.
func TestUpgradeMovesKubeletsToTheirOwnCA(t *testing.T) {
	g := newGround(t, true)
	m, err := newMachine(g.cfg, g.fakeHost)
	if err != nil {
		t.Fatal(err)
	}
	earlier(t, m)
	g.unmovedNode = "the kubelet of worker shows no certificate of the new CA yet"
	var out strings.Builder
	g.cfg.Out = &out
	if _, err := g.apply(t, g.options(t)); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(trusted(t, m), " "); got != "kubelet-ca ca" || issuer(t, m, kubeletServing) != kubeletCA {
		t.Errorf("while a worker is not upgraded the API server trusts %s", got)
	}
	if !strings.Contains(out.String(), g.unmovedNode) {
		t.Errorf("it does not say what is left:\n%s", out.String())
	}
	g.unmovedNode = ""
	if waits, err := m.finishMoving(t.Context(), g); waits != "" || err != nil {
		t.Error(waits, err)
	}
	if got := strings.Join(trusted(t, m), " "); got != kubeletCA {
		t.Errorf("when all kubelets have moved the API server trusts %s", got)
	}
	if waits, err := m.finishMoving(t.Context(), nil); waits != "" || err != nil {
		t.Errorf("a second time: %s, %v", waits, err)
	}
}

// The kubelet of an upgraded control plane keeps its certificate while an API
// server of the earlier version would not trust a new one.
func TestAKubeletMovesWhenAllServersTrustTheNewCA(t *testing.T) {
	g := newGround(t, true)
	m, err := newMachine(g.cfg, g.fakeHost)
	if err != nil {
		t.Fatal(err)
	}
	earlier(t, m)
	for range 2 { // renewals meanwhile keep the CA
		if err := m.identities(); err != nil {
			t.Fatal(err)
		}
		if got := issuer(t, m, kubeletServing); got != clusterCA {
			t.Fatalf("%s has signed the kubelet's certificate", got)
		}
	}
	waits, err := m.finishMoving(t.Context(), g) // the API server still has the old version
	if err != nil || !strings.Contains(waits, before) || issuer(t, m, kubeletServing) != clusterCA {
		t.Errorf("with an old API server: %s, %v", waits, err)
	}
	if olderServer([]upgrade.Server{{Address: "https://a", Version: version.Podium}, {Address: "https://b", Problem: "connection refused"}}) == "" {
		t.Error("a server that does not answer counts as a new one")
	}
}

func TestWorkerRequestsServingCertificateAgain(t *testing.T) {
	host, cfg := newHost(t)
	m, err := newMachine(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	asked := func() bool {
		_, err := os.Stat(m.at(kubeletCerts, "kubelet-server.renew"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return err == nil
	}
	if err := m.requestServing(); err != nil || asked() {
		t.Errorf("a kubelet without a certificate: %v", err)
	}
	for _, row := range []struct {
		by   string
		want bool
	}{{kubeletCA, false}, {clusterCA, true}} {
		ca, err := m.authority(row.by)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.authority(clusterCA); err != nil {
			t.Fatal(err)
		}
		if err := ca.Renew(m.at(kubeletCerts), "kubelet-server", pki.Identity{Name: "system:node:a", Hosts: []string{"a"}}); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(m.at(kubeletCerts, "kubelet-server.crt"), m.at(kubeletCerts, "kubelet-server-current.pem")); err != nil {
			t.Fatal(err)
		}
		if err := m.requestServing(); err != nil || asked() != row.want {
			t.Errorf("signed by %s: asked is %v, %v", row.by, asked(), err)
		}
	}
}
