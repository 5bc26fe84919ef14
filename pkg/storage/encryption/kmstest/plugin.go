// Package kmstest is a KMS v2 plugin for tests, with its keys in memory.
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

// annotation is what the plugin stores beside each ciphertext, and wants back.
const annotation = "version.kmstest.podium.dev"

// Plugin is a plugin with one key to write with and any number to read with.
// It may be used concurrently.
type Plugin struct {
	kms.UnimplementedKeyManagementServiceServer

	mu       sync.Mutex
	keys     map[string]cipher.AEAD
	present  string
	sick     string // what Status says instead of ok
	broken   error  // what every call answers
	calls    map[string]int
	endpoint string
}

// New makes a plugin with a key.
func New(key string) *Plugin {
	p := &Plugin{keys: map[string]cipher.AEAD{}, calls: map[string]int{}}
	p.Rotate(key)
	return p
}

// Serve answers on a socket in a folder of the test, until that ends.
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

// Endpoint is where Serve answers, as in an EncryptionConfiguration.
func (p *Plugin) Endpoint() string { return p.endpoint }

// Rotate makes a new key the present one; the old ones still decrypt.
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

// Sicken makes the plugin report that it is not well; empty: it is again.
func (p *Plugin) Sicken(why string) { p.set(func() { p.sick = why }) }

// Break makes every call fail; nil: they succeed again.
func (p *Plugin) Break(err error) { p.set(func() { p.broken = err }) }

func (p *Plugin) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// Calls is how often a method was called: Status, Encrypt, Decrypt.
func (p *Plugin) Calls(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[method]
}

func (p *Plugin) called(method string) error {
	p.calls[method]++
	return p.broken
}

// Status names the present key.
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

// Decrypt decrypts with the key that was used.
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
