package encryption

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"

	"golang.org/x/crypto/nacl/secretbox"
)

// Errors of stored bytes that a cipher cannot open.
var (
	errShort   = errors.New("the stored data is too short")
	errPadding = errors.New("the stored data is not padded as it should be, or the key is another one")
	errForged  = errors.New("the stored data was changed, or the key is another one")
)

// localCipher encrypts with a key in memory. path is the key of the value in the
// store. The methods do not modify their arguments and are safe for concurrent use.
type localCipher interface {
	seal(plain []byte, path string) ([]byte, error)
	open(sealed []byte, path string) ([]byte, error)
}

// gcm is AES-GCM: a random nonce of 12 bytes, then the encrypted value, bound to
// its path. Replace a key before it has written 2^32 values.
type gcm struct{ aead cipher.AEAD }

func newGCM(key []byte) (localCipher, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return gcm{aead}, nil
}

func (c gcm) seal(plain []byte, path string) ([]byte, error) { return c.sealAfter(nil, plain, path) }

// sealAfter prepends head to the nonce.
func (c gcm) sealAfter(head, plain []byte, path string) ([]byte, error) {
	size := c.aead.NonceSize()
	out := make([]byte, len(head)+size, len(head)+size+len(plain)+c.aead.Overhead())
	copy(out, head)
	nonce := out[len(head):]
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return c.aead.Seal(out, nonce, plain, []byte(path)), nil
}

func (c gcm) open(sealed []byte, path string) ([]byte, error) {
	size := c.aead.NonceSize()
	if len(sealed) < size+c.aead.Overhead() {
		return nil, errShort
	}
	plain, err := c.aead.Open(nil, sealed[:size], sealed[size:], []byte(path))
	if err != nil {
		return nil, errForged
	}
	return plain, nil
}

// cbc is AES-CBC: a random initialization vector of 16 bytes, then the encrypted
// value with PKCS#7 padding. It does not authenticate the value.
type cbc struct{ block cipher.Block }

func newCBC(key []byte) (localCipher, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cbc{block}, nil
}

func (c cbc) seal(plain []byte, _ string) ([]byte, error) {
	pad := aes.BlockSize - len(plain)%aes.BlockSize
	out := make([]byte, 0, aes.BlockSize+len(plain)+pad)
	out = append(out[:aes.BlockSize], plain...)
	out = append(out, bytes.Repeat([]byte{byte(pad)}, pad)...)
	iv, body := out[:aes.BlockSize], out[aes.BlockSize:]
	if _, err := rand.Read(iv); err != nil {
		return nil, err
	}
	cipher.NewCBCEncrypter(c.block, iv).CryptBlocks(body, body)
	return out, nil
}

func (c cbc) open(sealed []byte, _ string) ([]byte, error) {
	if len(sealed) < 2*aes.BlockSize {
		return nil, errShort
	}
	iv, body := sealed[:aes.BlockSize], sealed[aes.BlockSize:]
	if len(body)%aes.BlockSize != 0 {
		return nil, errPadding
	}
	plain := make([]byte, len(body))
	cipher.NewCBCDecrypter(c.block, iv).CryptBlocks(plain, body)
	pad := int(plain[len(plain)-1])
	if pad == 0 || pad > len(plain) {
		return nil, errPadding
	}
	rest := len(plain) - pad
	if !bytes.Equal(plain[rest:], bytes.Repeat([]byte{byte(pad)}, pad)) {
		return nil, errPadding
	}
	return plain[:rest], nil
}

// box is XSalsa20 and Poly1305: a random nonce of 24 bytes, then the encrypted
// value. The nonce is long enough for any number of values per key.
type box struct{ key [32]byte }

func newBox(key []byte) (localCipher, error) {
	if len(key) != 32 {
		return nil, fmt.Errorf("secretbox takes keys of 32 bytes, not of %d", len(key))
	}
	return &box{key: [32]byte(key)}, nil
}

const boxNonce = 24

func (c *box) seal(plain []byte, _ string) ([]byte, error) {
	out := make([]byte, boxNonce, boxNonce+len(plain)+secretbox.Overhead)
	if _, err := rand.Read(out); err != nil {
		return nil, err
	}
	return secretbox.Seal(out, plain, (*[boxNonce]byte)(out), &c.key), nil
}

func (c *box) open(sealed []byte, _ string) ([]byte, error) {
	if len(sealed) < boxNonce+secretbox.Overhead {
		return nil, errShort
	}
	plain, ok := secretbox.Open(nil, sealed[boxNonce:], (*[boxNonce]byte)(sealed), &c.key)
	if !ok {
		return nil, errForged
	}
	return plain, nil
}

// seeded derives a key for every value from a seed: 32 random bytes, from which
// HKDF-Expand with SHA-256 derives the key, then the value encrypted with AES-GCM.
type seeded struct{ seed []byte }

const seedSize = 32

func newSeeded(seed []byte) (localCipher, error) {
	if len(seed) < seedSize {
		return nil, fmt.Errorf("a seed has at least %d bytes, not %d", seedSize, len(seed))
	}
	return seeded{seed}, nil
}

func (c seeded) derive(info []byte) (gcm, error) {
	key, err := hkdf.Expand(sha256.New, c.seed, string(info), 32)
	if err != nil {
		return gcm{}, err
	}
	derived, err := newGCM(key)
	if err != nil {
		return gcm{}, err
	}
	return derived.(gcm), nil
}

func (c seeded) seal(plain []byte, path string) ([]byte, error) {
	info := make([]byte, seedSize)
	if _, err := rand.Read(info); err != nil {
		return nil, err
	}
	derived, err := c.derive(info)
	if err != nil {
		return nil, err
	}
	return derived.sealAfter(info, plain, path)
}

func (c seeded) open(sealed []byte, path string) ([]byte, error) {
	if len(sealed) < seedSize {
		return nil, errShort
	}
	derived, err := c.derive(sealed[:seedSize])
	if err != nil {
		return nil, err
	}
	return derived.open(sealed[seedSize:], path)
}
