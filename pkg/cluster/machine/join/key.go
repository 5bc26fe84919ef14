package join

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/hex"
	"errors"
)

// Key encrypts the files that control planes share, with AES-256-GCM.
type Key [32]byte

// NewKey returns a random key.
func NewKey() (k Key, err error) {
	_, err = rand.Read(k[:])
	return k, err
}

// Text returns the key as 64 hexadecimal digits, which ParseKey reads.
func (k Key) Text() string { return hex.EncodeToString(k[:]) }

// ParseKey parses 64 hexadecimal digits. Its error does not contain the key.
func ParseKey(text string) (k Key, err error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(k) {
		return k, errors.New("the certificate key is 64 hexadecimal digits, as podium certs upload prints them on a control plane's machine")
	}
	return Key(raw), nil
}

func (k Key) cipher() (cipher.AEAD, error) {
	block, err := aes.NewCipher(k[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Seal encrypts a file and authenticates its name, so that files cannot be
// exchanged.
func (k Key) Seal(name string, data []byte) ([]byte, error) {
	c, err := k.cipher()
	if err != nil {
		return nil, err
	}
	return c.Seal(nil, nil, data, []byte(name)), nil
}

// ErrWrongKey is returned by Open if the key or the name is wrong, or the data
// damaged.
var ErrWrongKey = errors.New("the certificate key does not open what was uploaded: it is mistyped, or a later podium certs upload has replaced it; run that again on a control plane's machine, and the command that it prints here")

// Open decrypts what Seal has encrypted under the same name. It returns
// ErrWrongKey if that fails.
func (k Key) Open(name string, sealed []byte) ([]byte, error) {
	c, err := k.cipher()
	if err != nil {
		return nil, err
	}
	data, err := c.Open(nil, nil, sealed, []byte(name))
	if err != nil {
		return nil, ErrWrongKey
	}
	return data, nil
}
