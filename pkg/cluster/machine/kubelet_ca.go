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

	"podium/pkg/cluster/files"
	"podium/pkg/cluster/machine/upgrade"
	"podium/pkg/cluster/pki"
	"podium/pkg/cluster/poll"
	"podium/pkg/version"
)

// Kubelets' serving certificates have a CA of their own, which only API servers
// trust: a node cannot use such a certificate to impersonate the API server.
// Clusters of earlier versions signed them with the cluster CA. They move in
// three steps, each of which may be interrupted and repeated:
//
//  1. Each control plane's upgrade makes the CA (the same one everywhere: its
//     key derives from the cluster CA's) and has the API server trust both.
//     kube-controller-manager signs with the new one from then on.
//  2. Each machine's upgrade has its kubelet request a new certificate. A
//     control plane, which signs its own kubelet's, waits until all API servers
//     trust the new CA.
//  3. When every kubelet serves a certificate of the new CA, each control plane
//     stops trusting the old one: at the end of its upgrade, or at the next
//     podium certs renew, which the timer runs every day.

// kubeletBundle is the file, below pkiDir, with the CAs that the API server
// trusts for kubelets' serving certificates.
const kubeletBundle = "kubelet-ca-bundle.pem"

// kubeletServing is the serving certificate that a control plane signs for its
// own kubelet.
const kubeletServing = "kubelet-serving"

// makeKubeletCA creates the kubelet CA and the bundle, unless the bundle
// exists. Call it before any certificate is issued: a machine that has an
// apiserver certificate but no bundle is part of a cluster of an earlier
// version, and gets a derived CA and both CAs in the bundle.
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

// moving reports whether the API server still trusts the cluster CA for
// kubelets. It is false on workers.
func (m *machine) moving() (bool, error) {
	data, err := os.ReadFile(m.at(pkiDir, kubeletBundle))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // a worker, or a control plane that was not upgraded yet
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

// authorityOf opens the CA that signs a certificate. During the move, the
// kubelet's serving certificate keeps the CA that signed the present one.
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

// finishMoving does what is possible of steps 2 and 3 on this control plane.
// waits describes what is left to wait for; it is "" when the move is complete.
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
	if err := pki.WriteBundle(m.at(pkiDir, kubeletBundle), own); err != nil {
		return "", err
	}
	return "", l.settings(ctx, func(string) {}) // metrics-server trusts the bundle, too
}

// goOnMoving is finishMoving for a machine that is not being upgraded. It
// prints what is left and returns nil: the next run continues.
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

// olderServer describes the first API server that does not answer or is older
// than this podium, and so may not trust the new CA; "" if there is none.
func olderServer(servers []upgrade.Server) string {
	self, err := version.Parse(version.Podium)
	if err != nil {
		return err.Error()
	}
	for _, s := range servers {
		v, err := version.Parse(s.Version)
		switch {
		case s.Problem != "":
			return fmt.Sprintf("the API server %s does not answer: %s", s.Address, s.Problem)
		case err != nil || v.Compare(self) < 0:
			return fmt.Sprintf("the API server %s is at %s still", s.Address, s.Version)
		}
	}
	return ""
}

// Timeouts for a kubelet to serve its new certificate, and to answer.
const (
	showTimeout = 5 * time.Second
	dialTimeout = 2 * time.Second
)

// unmoved describes the first kubelet that does not serve a certificate of this
// CA within showTimeout; "" if there is none. showTimeout applies to all
// nodes together.
func (l *live) unmoved(ctx context.Context, nodes []*corev1.Node, ca *x509.Certificate) (waits string) {
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	ctx, cancel := context.WithTimeout(ctx, showTimeout)
	defer cancel()
	for _, n := range nodes {
		err := poll.Until(ctx, 200*time.Millisecond, func(ctx context.Context) error { return showsCertificate(ctx, n, roots) })
		if err != nil {
			return fmt.Sprintf("the kubelet of %s shows no certificate of the new CA yet: %v", n.Name, err)
		}
	}
	return ""
}

// showsCertificate connects to a node's kubelet and returns an error unless its
// certificate is valid for the node under roots.
func showsCertificate(ctx context.Context, n *corev1.Node, roots *x509.CertPool) error {
	i := slices.IndexFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalIP })
	if i < 0 {
		return errors.New("the node has no InternalIP")
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: n.Name}}
	port := n.Status.DaemonEndpoints.KubeletEndpoint.Port
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(n.Status.Addresses[i].Address, strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	return conn.Close()
}

// requestServing marks a worker's serving certificate for renewal at the
// kubelet's next start, if the cluster CA has signed it.
func (m *machine) requestServing() error {
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
	_, err = files.Write(filepath.Join(m.at(kubeletCerts), "kubelet-server.renew"), nil, 0o600)
	return err
}
