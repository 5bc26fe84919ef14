package jwtkey

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

// Signer returns a signer for a private key that sets the key's id in the header.
func Signer(key crypto.Signer) (jose.Signer, error) {
	id, err := ID(key.Public())
	if err != nil {
		return nil, err
	}
	alg, err := Algorithm(key.Public())
	if err != nil {
		return nil, err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	if err != nil {
		return nil, fmt.Errorf("sign tokens: %w", err)
	}
	return signer, nil
}

// ID returns the key id of a public key, as upstream computes it: the hash of its DER
// form.
func ID(key crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("encode public key: %w", err)
	}
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// Algorithm returns the signature algorithm of a key, or an error if there is none.
func Algorithm(key crypto.PublicKey) (jose.SignatureAlgorithm, error) {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return jose.RS256, nil
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			return jose.ES256, nil
		case elliptic.P384():
			return jose.ES384, nil
		case elliptic.P521():
			return jose.ES512, nil
		}
	}
	return "", fmt.Errorf("%T cannot sign service account tokens: RSA and ECDSA keys can", key)
}
