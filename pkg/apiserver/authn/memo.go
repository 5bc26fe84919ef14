package authn

import (
	"crypto/sha256"
	"sync"
)

// memo remembers what was found out about credentials with the help of a basis
// (authorities, keys), as long as that stays the same. It holds hashes, not the
// credentials, and not too many.
type memo[B comparable, V any] struct {
	mu    sync.Mutex
	basis B
	known map[fingerprint]V
}

// fingerprint stands for a credential.
type fingerprint [sha256.Size]byte

const maxMemo = 8192

// get finds what is known of a credential.
func (m *memo[B, V]) get(basis B, id fingerprint) (v V, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.basis != basis {
		return v, false
	}
	v, ok = m.known[id]
	return v, ok
}

// put remembers v, and forgets what another basis has led to.
func (m *memo[B, V]) put(basis B, id fingerprint, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.basis != basis || m.known == nil || len(m.known) >= maxMemo {
		m.basis, m.known = basis, map[fingerprint]V{}
	}
	m.known[id] = v
}
