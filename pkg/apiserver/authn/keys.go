package authn

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"os"

	"github.com/go-jose/go-jose/v4"

	"podium/pkg/client/certfile"
)

// KeySet is one key that signs service account tokens, and all that verify
// them. It does not change.
type KeySet struct {
	signer  jose.Signer // nil if there is no key to sign with
	public  map[string]crypto.PublicKey
	allowed []jose.SignatureAlgorithm
}

// NewKeySet prepares keys. signing may be nil: then no tokens are handed out.
// Its public half verifies, too.
func NewKeySet(signing crypto.Signer, public ...crypto.PublicKey) (*KeySet, error) {
	k := &KeySet{public: map[string]crypto.PublicKey{}}
	if signing != nil {
		public = append([]crypto.PublicKey{signing.Public()}, public...)
	}
	for i, key := range public {
		id, err := keyID(key)
		if err != nil {
			return nil, err
		}
		alg, err := algorithm(key)
		if err != nil {
			return nil, err
		}
		k.public[id] = key
		k.allowed = append(k.allowed, alg)
		if signing == nil || i > 0 {
			continue
		}
		if k.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: signing, KeyID: id}}, nil); err != nil {
			return nil, fmt.Errorf("sign service account tokens: %w", err)
		}
	}
	return k, nil
}

// KeyFiles reads the keys from files, and again whenever these change, which is
// how keys are rotated: first every server learns the new public key, then the
// signing key is replaced, and when the last token of the old key has expired
// its public key goes. signing may be "".
func KeyFiles(signing string, public []string) (func() *KeySet, error) {
	load := func() (*KeySet, error) {
		var signer crypto.Signer
		if signing != "" {
			data, err := os.ReadFile(signing)
			if err != nil {
				return nil, fmt.Errorf("read the signing key: %w", err)
			}
			if signer, err = certfile.ParsePrivateKey(data); err != nil {
				return nil, fmt.Errorf("%s: %w", signing, err)
			}
		}
		var keys []crypto.PublicKey
		for _, file := range public {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("read public keys: %w", err)
			}
			more, err := certfile.ParsePublicKeys(data)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			keys = append(keys, more...)
		}
		return NewKeySet(signer, keys...)
	}
	files := public
	if signing != "" {
		files = append([]string{signing}, public...)
	}
	value, err := certfile.NewValue(load, files...)
	if err != nil {
		return nil, err
	}
	return value.Get, nil
}

var errNoSigner = errors.New("the server has no key to sign service account tokens with")

// keyID names a public key in the tokens it verifies, as upstream does: the
// hash of its DER form.
func keyID(key crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("encode public key: %w", err)
	}
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// algorithm is how a key signs.
func algorithm(key crypto.PublicKey) (jose.SignatureAlgorithm, error) {
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
