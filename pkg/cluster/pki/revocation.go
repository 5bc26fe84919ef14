package pki

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"slices"
)

const listType = "X509 CRL"

// Revoke adds serial numbers to the CA's revocation list in file, which it
// creates if needed, also without serials. It returns the numbers that were not
// on the list. An apiserver that has read the list (--client-crl-file) refuses
// the certificates. Revoke returns an error if another CA has signed the list.
func (a *Authority) Revoke(file string, serials ...*big.Int) (added []*big.Int, err error) {
	list, err := a.readList(file)
	exists := !errors.Is(err, fs.ErrNotExist)
	if err != nil && exists {
		return nil, err
	}
	for _, serial := range serials {
		known := func(e x509.RevocationListEntry) bool { return e.SerialNumber.Cmp(serial) == 0 }
		if slices.ContainsFunc(list.RevokedCertificateEntries, known) {
			continue
		}
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: serial, RevocationTime: a.now()})
		added = append(added, serial)
	}
	if exists && len(added) == 0 {
		return nil, nil
	}
	signer, err := a.signer()
	if err != nil {
		return nil, fmt.Errorf("sign revocation list: %w", err)
	}
	next := &x509.RevocationList{
		RevokedCertificateEntries: list.RevokedCertificateEntries, Number: new(big.Int).Add(list.Number, big.NewInt(1)),
		ThisUpdate: a.now().Add(-backdate), NextUpdate: a.Cert.NotAfter,
	}
	issuer := *a.Cert
	issuer.KeyUsage |= x509.KeyUsageCRLSign // CAs created by other tools often lack it
	der, err := x509.CreateRevocationList(rand.Reader, next, &issuer, signer)
	if err != nil {
		return nil, fmt.Errorf("sign revocation list: %w", err)
	}
	return added, writePEM(file, listType, der, 0o644)
}

// readList returns the list in file. With an error the list is empty, not nil.
func (a *Authority) readList(file string) (*x509.RevocationList, error) {
	none := &x509.RevocationList{Number: new(big.Int)}
	data, err := os.ReadFile(file)
	if err != nil {
		return none, err
	}
	block, rest := pem.Decode(data)
	if block == nil || block.Type != listType {
		return none, fmt.Errorf("%s holds no revocation list", file)
	}
	if next, _ := pem.Decode(rest); next != nil {
		return none, fmt.Errorf("%s holds several lists: only the authority that has made one can add to it", file)
	}
	list, err := x509.ParseRevocationList(block.Bytes)
	if err != nil {
		return none, fmt.Errorf("parse %s: %w", file, err)
	}
	if err := a.Cert.CheckSignature(list.SignatureAlgorithm, list.RawTBSRevocationList, list.Signature); err != nil {
		return none, fmt.Errorf("%s is not of this authority: %w", file, err)
	}
	if list.Number == nil {
		list.Number = new(big.Int)
	}
	return list, nil
}

// ParseCertificates returns all certificates in PEM data and skips other
// blocks. Data without certificates is not an error.
func ParseCertificates(data []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return out, nil
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, cert)
	}
}
