package machine

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"os"
	"strings"

	"podium/pkg/client/kubeconfig"
	"podium/pkg/cluster/pki"
)

// revokedFile is the revocation list, below pkiDir, that the apiserver reads.
const revokedFile = "ca.crl"

// RevokeOptions say which certificates are good no longer.
type RevokeOptions struct {
	Files   []string // certificates in PEM form, or kubeconfigs that hold some
	Serials []string // serial numbers, in hexadecimal
}

// RevokeCertificates puts certificates of the cluster's authority on its
// revocation list. This machine's apiserver refuses them from the next second
// on, and ends what they have open.
func RevokeCertificates(_ context.Context, cfg Config, host Host, o RevokeOptions) error {
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
	serials, err := o.serials(ca.Cert)
	if err != nil {
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
	fmt.Fprintf(m.Out, "Copy %s to the other control planes, if there are any.\n", pkiFile(revokedFile))
	return nil
}

func (o *RevokeOptions) serials(ca *x509.Certificate) ([]*big.Int, error) {
	var all []*big.Int
	for _, text := range o.Serials {
		n, ok := new(big.Int).SetString(strings.ReplaceAll(text, ":", ""), 16)
		if !ok || n.Sign() <= 0 {
			return nil, fmt.Errorf("--serial %s is no serial number in hexadecimal", text)
		}
		all = append(all, n)
	}
	for _, file := range o.Files {
		cert, err := readLeaf(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if cert.CheckSignatureFrom(ca) != nil {
			return nil, fmt.Errorf("%s: the certificate of %q is not signed by this cluster's authority", file, cert.Subject.CommonName)
		}
		all = append(all, cert.SerialNumber)
	}
	if len(all) == 0 {
		return nil, errors.New("say which certificates: by FILE or --serial")
	}
	return all, nil
}

// readLeaf reads the certificate of a PEM file or of a kubeconfig's user.
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
