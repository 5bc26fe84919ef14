package authn

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"podium/pkg/client/certfile"
)

// Revocations are certificates that are good no longer, though their time is
// not over: what the authorities' revocation lists (RFC 5280) say. It does not
// change. A nil one revokes nothing.
type Revocations struct {
	serials map[string]bool // by issuer and number
}

func serial(rawIssuer []byte, number interface{ Bytes() []byte }) string {
	return string(rawIssuer) + "\x00" + string(number.Bytes())
}

// Any says whether one of a chain's certificates is revoked.
func (r *Revocations) Any(chain []*x509.Certificate) bool {
	if r == nil {
		return false
	}
	for _, cert := range chain {
		if r.serials[serial(cert.RawIssuer, cert.SerialNumber)] {
			return true
		}
	}
	return false
}

// ParseRevocations reads lists in PEM form. Each must be signed by one of the
// authorities. A list that is overdue counts nevertheless: what was revoked
// does not come back by waiting.
func ParseRevocations(data []byte, authorities []*x509.Certificate) (*Revocations, error) {
	out := &Revocations{serials: map[string]bool{}}
	for rest := data; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return out, nil
		}
		if block.Type != "X509 CRL" {
			return nil, fmt.Errorf("a PEM block of type %q is no revocation list", block.Type)
		}
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse revocation list: %w", err)
		}
		if err := checkList(list, authorities); err != nil {
			return nil, fmt.Errorf("revocation list of %s: %w", list.Issuer, err)
		}
		for _, entry := range list.RevokedCertificateEntries {
			out.serials[serial(list.RawIssuer, entry.SerialNumber)] = true
		}
	}
}

func checkList(list *x509.RevocationList, authorities []*x509.Certificate) error {
	for _, e := range list.Extensions {
		if e.Critical { // a part of a list, or one for others' certificates
			return fmt.Errorf("the critical extension %v is not understood", e.Id)
		}
	}
	for _, a := range authorities {
		// Authorities made without the right to sign lists sign them anyway:
		// whoever has their key can revoke.
		if string(a.RawSubject) == string(list.RawIssuer) && a.CheckSignature(list.SignatureAlgorithm, list.RawTBSRevocationList, list.Signature) == nil {
			return nil
		}
	}
	return errors.New("it is signed by none of the client authorities")
}

// RevocationFile reads lists from a file, and again whenever it or the file
// with the authorities changes. While what is there cannot be read, what was
// there before stays in force, and failed is told.
func RevocationFile(file, authorities string, failed func(error)) (func() *Revocations, error) {
	started := false
	load := func() (*Revocations, error) {
		r, err := readRevocations(file, authorities)
		if err != nil && started {
			failed(err)
		}
		return r, err
	}
	value, err := certfile.NewValue(load, file, authorities)
	if err != nil {
		return nil, err
	}
	started = true
	return value.Get, nil
}

func readRevocations(file, authorities string) (*Revocations, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pemCAs, err := os.ReadFile(authorities)
	if err != nil {
		return nil, err
	}
	r, err := ParseRevocations(data, parseCertificates(pemCAs))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

func parseCertificates(data []byte) []*x509.Certificate {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return out
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, cert)
		}
	}
}
