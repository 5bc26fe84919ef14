package machine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/cluster/pki"
	"podium/pkg/cluster/poll"
	"podium/pkg/version"
)

// Kubelets' serving certificates have a CA of their own, which only API servers
// trust: whatever a node gets signed there, no client takes it for the API
// server. Clusters of versions before had them signed by the cluster's CA. They
// move in three steps, each of which may be interrupted and repeated:
//
//  1. Each control plane's upgrade makes the CA (the same one everywhere: its
//     key derives from the cluster CA's) and has the API server trust both.
//     kube-controller-manager signs with the new one from then on.
//  2. Each machine's upgrade has its kubelet ask for a new certificate. A
//     control plane, which signs its own kubelet's, waits until all API servers
//     trust the new CA.
//  3. When every kubelet shows a certificate of the new CA, each control plane
//     stops trusting the old one: at the end of its upgrade, or when
//     podium certs renew runs next, which the timer does every day.

// kubeletBundle is the file, below pkiDir, with the CAs of kubelets' serving
// certificates that the API server trusts.
const kubeletBundle = "kubelet-ca-bundle.pem"

// kubeletServing is the certificate that a control plane signs for its kubelet.
const kubeletServing = "kubelet-serving"

// makeKubeletCA makes the CA and the bundle if there are none. To be called
// before any certificate is issued: a machine that has an API server's is part
// of a cluster that was made without this CA.
func (m *machine) makeKubeletCA() error {
	bundle := m.at(pkiDir, kubeletBundle)
	if _, err := os.Stat(bundle); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(m.at(pkiDir, "apiserver.crt")); errors.Is(err, fs.ErrNotExist) {
		own, err := m.authority(kubeletCA)
		if err != nil {
			return err
		}
		return pki.WriteBundle(bundle, own)
	}
	ca, err := m.authority(clusterCA)
	if err != nil {
		return err
	}
	own, err := ca.Derive(m.at(pkiDir), kubeletCA)
	if err != nil {
		return err
	}
	return pki.WriteBundle(bundle, own, ca)
}

// moving says whether the API server still trusts the cluster's CA for kubelets.
func (m *machine) moving() (bool, error) {
	data, err := os.ReadFile(m.at(pkiDir, kubeletBundle))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // no control plane, or one that was not upgraded yet
	}
	if err != nil {
		return false, err
	}
	trusted, err := pki.ParseCertificates(data)
	if err != nil {
		return false, fmt.Errorf("%s: %w", pkiFile(kubeletBundle), err)
	}
	ca, err := pki.ReadCertificate(m.at(pkiDir), clusterCA)
	return err == nil && slices.ContainsFunc(trusted, ca.Equal), err
}

// authorityOf is the authority that signs a certificate: while the cluster
// moves, the kubelet's keeps the one that it has.
func (m *machine) authorityOf(c certificate) (*pki.Authority, error) {
	if c.name != kubeletServing {
		return m.authority(c.authority)
	}
	moving, err := m.moving()
	if err != nil || !moving {
		return m.authority(c.authority)
	}
	ca, err := m.authority(clusterCA)
	if err != nil {
		return nil, err
	}
	have, err := pki.ReadCertificate(m.at(pkiDir), kubeletServing)
	if err == nil && ca.Signed(have) {
		return ca, nil
	}
	return m.authority(c.authority)
}

// finishMoving does what can be done of steps 2 and 3 on this control plane.
// waits says what is left; "" if nothing is.
func (m *machine) finishMoving(ctx context.Context, l fleet) (waits string, err error) {
	moving, err := m.moving()
	if err != nil || !moving {
		return "", err
	}
	servers, err := l.servers(ctx)
	if err != nil {
		return "", err
	}
	if waits := olderServer(servers); waits != "" {
		return waits, nil
	}
	own, err := m.authority(kubeletCA)
	if err != nil {
		return "", err
	}
	for _, c := range m.controlPlaneCertificates() {
		if c.name == kubeletServing {
			err = own.Issue(m.at(pkiDir), c.name, c.id)
		}
	}
	if err != nil {
		return "", err
	}
	nodes, err := l.nodes(ctx)
	if err != nil {
		return "", err
	}
	if waits := l.unmoved(ctx, nodes, own.Cert); waits != "" {
		return waits, nil
	}
	return "", pki.WriteBundle(m.at(pkiDir, kubeletBundle), own)
}

// goOnMoving is finishMoving for a machine that is not being upgraded. That
// something is left is no error: the next run goes on.
func (m *machine) goOnMoving(ctx context.Context) error {
	if moving, err := m.moving(); err != nil || !moving {
		return err
	}
	l, err := connect(m, true)
	if err != nil {
		return err
	}
	waits, err := m.finishMoving(ctx, l)
	switch {
	case err != nil:
		waits = err.Error()
	case waits == "":
		fmt.Fprintln(m.Out, "kubelets are trusted by their own CA only, from now on")
		return nil
	}
	fmt.Fprintf(m.Out, "the cluster's CA stays trusted for kubelets: %s\n", waits)
	return nil
}

// olderServer says which API server does not trust the new CA yet.
func olderServer(servers []server) string {
	self, err := version.Parse(version.Podium)
	if err != nil {
		return err.Error()
	}
	for _, s := range servers {
		v, err := version.Parse(s.version)
		switch {
		case s.problem != "":
			return fmt.Sprintf("the API server %s does not answer: %s", s.address, s.problem)
		case err != nil || v.Compare(self) < 0:
			return fmt.Sprintf("the API server %s is at %s still", s.address, s.version)
		}
	}
	return ""
}

// How long a kubelet may take to show its new certificate, and to answer.
const (
	showPatience = 5 * time.Second
	dialPatience = 2 * time.Second
)

// unmoved says which kubelet does not show a certificate of this CA.
func (l *live) unmoved(ctx context.Context, nodes []*corev1.Node, ca *x509.Certificate) (waits string) {
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	ctx, cancel := context.WithTimeout(ctx, showPatience)
	defer cancel()
	for _, n := range nodes {
		err := poll.Until(ctx, 200*time.Millisecond, func(ctx context.Context) error { return showsCertificate(ctx, n, roots) })
		if err != nil {
			return fmt.Sprintf("the kubelet of %s shows no certificate of the new CA yet: %v", n.Name, err)
		}
	}
	return ""
}

// showsCertificate connects to a node's kubelet and verifies its certificate.
func showsCertificate(ctx context.Context, n *corev1.Node, roots *x509.CertPool) error {
	i := slices.IndexFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalIP })
	if i < 0 {
		return errors.New("the node has no InternalIP")
	}
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: n.Name}}
	port := n.Status.DaemonEndpoints.KubeletEndpoint.Port
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(n.Status.Addresses[i].Address, strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	return conn.Close()
}

// askForServing has the kubelet of a worker ask for a new serving certificate
// when it starts next, if the cluster's CA has signed the one that it has.
func (m *machine) askForServing() error {
	data, err := os.ReadFile(m.at(kubeletCerts, "kubelet-server-current.pem"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	ca, err := pki.ReadCertificate(m.at(pkiDir), clusterCA)
	if err != nil {
		return err
	}
	certs, err := pki.ParseCertificates(data)
	if err != nil || len(certs) == 0 || certs[0].CheckSignatureFrom(ca) != nil {
		return err
	}
	_, err = writeFile(filepath.Join(m.at(kubeletCerts), "kubelet-server.renew"), nil, 0o600)
	return err
}
