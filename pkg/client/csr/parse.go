package csr

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// Types of PEM blocks.
const (
	requestBlock     = "CERTIFICATE REQUEST"
	certificateBlock = "CERTIFICATE"
)

// Parse parses the PEM-encoded PKCS#10 request of spec.request. It does not check the
// signature.
func Parse(text []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != requestBlock {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

// ParseChain parses the PEM certificates of status.certificate, the leaf first. It
// fails if there is no certificate or anything else.
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
