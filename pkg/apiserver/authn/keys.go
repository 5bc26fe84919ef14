package authn

import (
	"crypto"
	"errors"
	"fmt"
	"os"

	"github.com/go-jose/go-jose/v4"

	"podium/pkg/client/certfile"
	"podium/pkg/client/jwtkey"
)

// KeySet is the key that signs service account tokens and the keys that verify
// them. It is immutable.
type KeySet struct {
	signer  jose.Signer // nil if there is no signing key
	public  map[string]crypto.PublicKey
	allowed []jose.SignatureAlgorithm
}

// NewKeySet returns a set of keys. The public half of signing verifies as well.
// signing may be nil; then no tokens can be issued.
func NewKeySet(signing crypto.Signer, public ...crypto.PublicKey) (*KeySet, error) {
	k := &KeySet{public: map[string]crypto.PublicKey{}}
	if signing != nil {
		public = append([]crypto.PublicKey{signing.Public()}, public...)
	}
	for i, key := range public {
		id, err := jwtkey.ID(key)
		if err != nil {
			return nil, err
		}
		alg, err := jwtkey.Algorithm(key)
		if err != nil {
			return nil, err
		}
		k.public[id] = key
		k.allowed = append(k.allowed, alg)
		if signing == nil || i > 0 {
			continue
		}
		if k.signer, err = jwtkey.Signer(signing); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// KeyFiles reads keys from files and returns a function that yields the current
// ones, read again when a file changes. To rotate keys, first distribute the
// new public key to every server, then replace the signing key, and remove the
// old public key when its last token has expired. signing may be "".
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
