package certfile_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"testing"

	"podium/pkg/client/certfile"
)

func TestKeysFromPEM(t *testing.T) {
	key := ecdsaKey(t)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	private := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	if der, err = x509.MarshalPKIXPublicKey(key.Public()); err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	got, err := certfile.ParsePrivateKey(private)
	if err != nil || !key.Equal(got) {
		t.Errorf("private: %v", err)
	}
	keys, err := certfile.ParsePublicKeys(append(public, private...))
	if err != nil || len(keys) != 2 || !key.PublicKey.Equal(keys[0]) || !key.PublicKey.Equal(keys[1]) {
		t.Errorf("public: %v %v", keys, err)
	}
	if _, err := certfile.ParsePrivateKey([]byte("x")); err == nil {
		t.Error("nothing is a key")
	}
}

func ecdsaKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func FuzzKeys(f *testing.F) {
	der, err := x509.MarshalPKCS8PrivateKey(ecdsaKey(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	f.Add([]byte("-----BEGIN X-----\n-----END X-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if key, err := certfile.ParsePrivateKey(data); err == nil && key == nil {
			t.Fatal("no key and no error")
		}
		if keys, err := certfile.ParsePublicKeys(data); err == nil && len(keys) == 0 {
			t.Fatal("no key and no error")
		}
	})
}
