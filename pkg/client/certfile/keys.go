package certfile

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
)

// ParsePrivateKey returns the first RSA or ECDSA private key in PEM data.
func ParsePrivateKey(data []byte) (crypto.Signer, error) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return nil, errors.New("no private key in PEM form")
		}
		if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
			return key, nil
		}
		if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
			return key, nil
		}
		if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
			if signer, ok := key.(crypto.Signer); ok {
				return signer, nil
			}
		}
	}
}

// ParsePublicKeys returns all keys in PEM data: public keys, and the public keys of
// certificates and private keys.
func ParsePublicKeys(data []byte) ([]crypto.PublicKey, error) {
	var keys []crypto.PublicKey
	for rest := data; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if key, err := x509.ParsePKIXPublicKey(block.Bytes); err == nil {
			keys = append(keys, key)
		} else if key, err := x509.ParsePKCS1PublicKey(block.Bytes); err == nil {
			keys = append(keys, key)
		} else if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			keys = append(keys, cert.PublicKey)
		} else if key, err := ParsePrivateKey(pem.EncodeToMemory(block)); err == nil {
			keys = append(keys, key.Public())
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("no public key in PEM form")
	}
	return keys, nil
}
