package authn

import (
	"crypto/sha256"
	"sync"
)

// memo caches values derived from a credential and a basis, such as CAs or
// keys. It is emptied when the basis changes or when it is full. It stores
// hashes instead of credentials. It is safe for concurrent use; the zero value
// is empty.
type memo[B comparable, V any] struct {
	mu    sync.Mutex
	basis B
	known map[fingerprint]V
}

// fingerprint is the SHA-256 of a credential.
type fingerprint [sha256.Size]byte

const maxMemo = 8192

// get returns the value of a credential under a basis.
func (m *memo[B, V]) get(basis B, id fingerprint) (v V, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.basis != basis {
		return v, false
	}
	v, ok = m.known[id]
	return v, ok
}

// put stores v, and drops the values of any other basis.
func (m *memo[B, V]) put(basis B, id fingerprint, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.basis != basis || m.known == nil || len(m.known) >= maxMemo {
		m.basis, m.known = basis, map[fingerprint]V{}
	}
	m.known[id] = v
}
