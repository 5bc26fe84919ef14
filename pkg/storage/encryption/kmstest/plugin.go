// Package kmstest provides a KMS v2 plugin for tests that holds its keys in memory.
package kmstest

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	kms "k8s.io/kms/apis/v2"
)

// annotation is stored beside each ciphertext; Decrypt fails without it.
const annotation = "version.kmstest.podium.dev"

// Plugin encrypts with one key and decrypts with any number of keys. Its methods
// are safe for concurrent use, except that Serve must precede Endpoint.
type Plugin struct {
	kms.UnimplementedKeyManagementServiceServer

	mu       sync.Mutex
	keys     map[string]cipher.AEAD
	present  string
	sick     string // returned by Status instead of ok
	broken   error  // returned by every call
	calls    map[string]int
	endpoint string
}

// New creates a plugin with one key of this name.
func New(key string) *Plugin {
	p := &Plugin{keys: map[string]cipher.AEAD{}, calls: map[string]int{}}
	p.Rotate(key)
	return p
}

// Serve starts to serve on a Unix socket, until the test ends. It does not block.
func (p *Plugin) Serve(t testing.TB) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "kms.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	p.endpoint = "unix://" + socket
	server := grpc.NewServer()
	kms.RegisterKeyManagementServiceServer(server, p)
	go server.Serve(l)
	t.Cleanup(server.Stop)
}

// Endpoint returns the URL of the socket, as in an EncryptionConfiguration.
func (p *Plugin) Endpoint() string { return p.endpoint }

// Rotate creates a key that encrypts from now on; the old keys still decrypt.
func (p *Plugin) Rotate(key string) {
	secret := make([]byte, 32)
	rand.Read(secret)
	block, err := aes.NewCipher(secret)
	if err != nil {
		panic(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys[key], p.present = aead, key
}

// Sicken makes Status report why instead of ok; "" restores ok.
func (p *Plugin) Sicken(why string) { p.set(func() { p.sick = why }) }

// Break makes every call fail with err; nil makes them succeed again.
func (p *Plugin) Break(err error) { p.set(func() { p.broken = err }) }

func (p *Plugin) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// Calls returns the number of calls of a method: Status, Encrypt or Decrypt.
func (p *Plugin) Calls(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[method]
}

func (p *Plugin) called(method string) error {
	p.calls[method]++
	return p.broken
}

// Status reports the health and the present key.
func (p *Plugin) Status(context.Context, *kms.StatusRequest) (*kms.StatusResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.called("Status"); err != nil {
		return nil, err
	}
	healthz := "ok"
	if p.sick != "" {
		healthz = p.sick
	}
	return &kms.StatusResponse{Version: "v2", Healthz: healthz, KeyId: p.present}, nil
}

// Encrypt encrypts with the present key.
func (p *Plugin) Encrypt(_ context.Context, r *kms.EncryptRequest) (*kms.EncryptResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.called("Encrypt"); err != nil {
		return nil, err
	}
	aead := p.keys[p.present]
	nonce := make([]byte, aead.NonceSize())
	rand.Read(nonce)
	return &kms.EncryptResponse{
		Ciphertext: aead.Seal(nonce, nonce, r.Plaintext, []byte(p.present)), KeyId: p.present,
		Annotations: map[string][]byte{annotation: []byte("1")},
	}, nil
}

// Decrypt decrypts with the key that the request names.
func (p *Plugin) Decrypt(_ context.Context, r *kms.DecryptRequest) (*kms.DecryptResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.called("Decrypt"); err != nil {
		return nil, err
	}
	aead := p.keys[r.KeyId]
	switch {
	case aead == nil:
		return nil, fmt.Errorf("no key %q", r.KeyId)
	case string(r.Annotations[annotation]) != "1":
		return nil, errors.New("the annotation was lost")
	case len(r.Ciphertext) < aead.NonceSize():
		return nil, errors.New("the ciphertext is too short")
	}
	size := aead.NonceSize()
	plain, err := aead.Open(nil, r.Ciphertext[:size], r.Ciphertext[size:], []byte(r.KeyId))
	return &kms.DecryptResponse{Plaintext: plain}, err
}
