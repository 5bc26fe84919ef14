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
