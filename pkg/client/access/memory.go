package access

import (
	"sync"
	"time"
)

// memory remembers answers until they are too old, and no more than most of
// them: who asks ever new questions must not fill the process.
type memory[K comparable, V any] struct {
	now func() time.Time

	mu      sync.Mutex
	answers map[K]answer[V]
}

type answer[V any] struct {
	value V
	until time.Time
}

const most = 10_000

func newMemory[K comparable, V any](now func() time.Time) *memory[K, V] {
	return &memory[K, V]{now: now, answers: map[K]answer[V]{}}
}

func (m *memory[K, V]) get(key K) (value V, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, known := m.answers[key]
	if known && !m.now().Before(a.until) {
		delete(m.answers, key)
		known = false
	}
	if !known {
		return value, false
	}
	return a.value, true
}

func (m *memory[K, V]) put(key K, value V, ttl time.Duration) {
	if ttl <= 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.answers) >= most {
		m.makeRoom()
	}
	m.answers[key] = answer[V]{value, m.now().Add(ttl)}
}

// makeRoom drops what is too old, or else everything: it is only a memory.
func (m *memory[K, V]) makeRoom() {
	now := m.now()
	for key, a := range m.answers {
		if !now.Before(a.until) {
			delete(m.answers, key)
		}
	}
	if len(m.answers) >= most {
		clear(m.answers)
	}
}
