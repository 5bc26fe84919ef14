package csr

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// The types of PEM blocks.
const (
	requestBlock     = "CERTIFICATE REQUEST"
	certificateBlock = "CERTIFICATE"
)

// Parse reads the PKCS#10 request in PEM that spec.request holds. Its
// signature is not checked.
func Parse(text []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != requestBlock {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

// ParseChain reads the certificates in PEM that status.certificate holds, the
// requested one first: at least one, and nothing else.
func ParseChain(text []byte) ([]*x509.Certificate, error) {
	var chain []*x509.Certificate
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		if block.Type != certificateBlock {
			return nil, fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if len(block.Headers) != 0 {
			return nil, errors.New("no PEM block headers are permitted")
		}
		certs, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return nil, err
		}
		if len(certs) == 0 {
			return nil, errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
		chain = append(chain, certs...)
		text = rest
	}
	if len(chain) == 0 {
		return nil, errors.New("must contain at least one CERTIFICATE PEM block")
	}
	return chain, nil
}
