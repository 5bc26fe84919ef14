package machine

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/client/revocation"
	"podium/pkg/cluster/files"
	"podium/pkg/cluster/pki"
	"podium/pkg/cluster/poll"
)

// revokedFile is the certificate revocation list, below pkiDir, that the
// apiserver reads.
const revokedFile = "ca.crl"

// RevokeOptions select the certificates to revoke. At least one is required.
type RevokeOptions struct {
	Files   []string // certificates in PEM format, or kubeconfigs that contain one
	Serials []string // serial numbers, in hexadecimal
}

// RevokeCertificates adds certificates of the cluster CA to its revocation
// list. This machine's API server reads the list and publishes it; within
// seconds all API servers, kubelets and control-plane daemons refuse the
// certificates and close connections that use them. It waits until the list is
// published, but returns nil if it is only written: the API server publishes it
// later. It needs the CA's key.
func RevokeCertificates(ctx context.Context, cfg Config, host Host, o RevokeOptions) error {
	m, err := newMachine(cfg, host)
	if err != nil {
		return err
	}
	if _, err := os.Stat(m.at(pkiDir, "ca.key")); err != nil {
		return fmt.Errorf("revoke on a control plane's machine, which has the authority's key: %w", err)
	}
	ca, err := m.authority(clusterCA)
	if err != nil {
		return err
	}
	serials, names, err := o.serials(ca.Cert)
	if err != nil {
		return err
	}
	if err := m.keepNames(names); err != nil {
		return err
	}
	added, err := ca.Revoke(m.at(pkiDir, revokedFile), serials...)
	if err != nil {
		return err
	}
	for _, n := range added {
		fmt.Fprintf(m.Out, "revoked %x\n", n)
	}
	if len(added) < len(serials) {
		fmt.Fprintf(m.Out, "%d had been revoked before\n", len(serials)-len(added))
	}
	if err := m.published(ctx, ca.Cert); err != nil {
		fmt.Fprintf(m.Out, "The list is in %s, and not published to other machines yet; kube-apiserver does that as soon as it runs: %v\n", pkiFile(revokedFile), err)
		return nil
	}
	fmt.Fprintln(m.Out, "The list is published: all control planes and nodes refuse these certificates within seconds.")
	return nil
}

// publishTimeout is how long to wait for the API server to publish a list.
const publishTimeout = 10 * time.Second

// published waits until the published list contains this machine's. It uses the
// kubelet's credentials: the administrator's certificate may be the one that
// was revoked.
func (m *machine) published(ctx context.Context, ca *x509.Certificate) error {
	data, err := os.ReadFile(m.at(pkiDir, revokedFile))
	if err != nil {
		return err
	}
	want, err := revocation.Parse(data, []*x509.Certificate{ca})
	if err != nil {
		return err
	}
	cl, err := m.as(kubeletConf)
	if err != nil {
		return err
	}
	defer cl.CloseIdle()
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	return poll.Until(ctx, 200*time.Millisecond, func(ctx context.Context) error {
		config, err := client.For[*corev1.ConfigMap](cl).In(revocation.Namespace).Get(ctx, revocation.ConfigMap)
		if err != nil {
			return err
		}
		have, _ := revocation.Parse([]byte(config.Data[revocation.Key]), []*x509.Certificate{ca}) // lists without a valid signature are skipped
		if !have.Covers(want) {
			return errors.New("the ConfigMap lacks some")
		}
		return nil
	})
}

// revokedNames is the file, below pkiDir, with the subjects of the certificates
// that were revoked on this machine: a revocation list has serial numbers only.
const revokedNames = "revoked-names.json"

// names returns subjects by serial number in hexadecimal. The map is empty if
// the file does not exist.
func (m *machine) names() (names map[string]string, err error) {
	data, err := os.ReadFile(m.at(pkiDir, revokedNames))
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &names)
	}
	return names, err
}

// keepNames adds subjects to revokedNames.
func (m *machine) keepNames(more map[string]string) error {
	if len(more) == 0 {
		return nil
	}
	names, err := m.names()
	if err != nil {
		return err
	}
	maps.Copy(names, more)
	data, err := json.Marshal(names)
	if err != nil {
		return err
	}
	_, err = files.Write(m.at(pkiDir, revokedNames), data, 0o600)
	return err
}

// kubeletRevoked is this machine's copy of the published list, which the
// kubelet writes.
const kubeletRevoked = "/var/lib/kubelet/revoked.crl"

// revoked merges this machine's own list and the published one. It returns nil
// if there is none.
func (m *machine) revoked() (*revocation.List, error) {
	pemCA, err := os.ReadFile(m.at(pkiDir, "ca.crt"))
	if err != nil {
		return nil, err
	}
	var all *revocation.List
	for _, file := range []string{pkiFile(revokedFile), kubeletRevoked} {
		data, err := os.ReadFile(m.at(file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list, err := revocation.Parse(data, revocation.ParseCertificates(pemCA))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = revocation.Merge(all, list)
	}
	return all, nil
}

// showRevoked prints the revoked certificates; nothing if there are none.
func (m *machine) showRevoked() error {
	list, err := m.revoked()
	if err != nil {
		return err
	}
	names, err := m.names()
	if err != nil {
		return err
	}
	for i, e := range list.Entries() {
		if i == 0 {
			fmt.Fprintf(m.Out, "\n%-34s %-22s %-12s %s\n", "REVOKED", "SINCE", "AUTHORITY", "NAME")
		}
		serial := fmt.Sprintf("%x", e.Serial)
		fmt.Fprintf(m.Out, "%-34s %-22s %-12s %s\n", serial, e.Since.UTC().Format(time.RFC3339), e.Issuer, cmp.Or(names[serial], "<unknown>"))
	}
	return nil
}

// serials returns the serial numbers to revoke, and the subjects of the
// certificates that were given as files, by serial number in hexadecimal.
func (o *RevokeOptions) serials(ca *x509.Certificate) (all []*big.Int, names map[string]string, err error) {
	names = map[string]string{}
	for _, text := range o.Serials {
		n, ok := new(big.Int).SetString(strings.ReplaceAll(text, ":", ""), 16)
		if !ok || n.Sign() <= 0 {
			return nil, nil, fmt.Errorf("--serial %s is no serial number in hexadecimal", text)
		}
		all = append(all, n)
	}
	for _, file := range o.Files {
		cert, err := readLeaf(file)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", file, err)
		}
		if cert.CheckSignatureFrom(ca) != nil {
			return nil, nil, fmt.Errorf("%s: the certificate of %q is not signed by this cluster's authority", file, cert.Subject.CommonName)
		}
		all = append(all, cert.SerialNumber)
		names[fmt.Sprintf("%x", cert.SerialNumber)] = cert.Subject.CommonName
	}
	if len(all) == 0 {
		return nil, nil, errors.New("specify the certificates by FILE or --serial")
	}
	return all, names, nil
}

// readLeaf returns the first certificate of a PEM file, or that of a
// kubeconfig's current user.
func readLeaf(file string) (*x509.Certificate, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	certs, err := pki.ParseCertificates(data)
	if err == nil && len(certs) == 0 {
		certs, err = fromKubeconfig(file)
	}
	if err != nil {
		return nil, err
	}
	if len(certs) == 0 {
		return nil, errors.New("it holds no certificate")
	}
	return certs[0], nil
}

// fromKubeconfig returns the client certificates of the current context's user.
func fromKubeconfig(file string) ([]*x509.Certificate, error) {
	config, err := kubeconfig.Load(file)
	if err != nil {
		return nil, errors.New("it is neither a certificate nor a kubeconfig")
	}
	context := config.Context(config.CurrentContext)
	if context == nil || config.User(context.User) == nil {
		return nil, errors.New("the kubeconfig's current context has no user")
	}
	user := config.User(context.User)
	if len(user.ClientCertificateData) > 0 || user.ClientCertificate == "" {
		return pki.ParseCertificates(user.ClientCertificateData)
	}
	data, err := os.ReadFile(user.ClientCertificate)
	if err != nil {
		return nil, err
	}
	return pki.ParseCertificates(data)
}
