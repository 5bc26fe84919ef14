package nodepressure

import (
	"sync"
	"time"
)

// Observation is a measurement of a signal.
type Observation struct{ Available, Capacity int64 }

// Monitor compares measurements with the thresholds. It is safe for concurrent use.
type Monitor struct {
	// Read measures the signals; those that it cannot measure are missing.
	Read       func() map[Signal]Observation
	Thresholds []Threshold   // in the order of Parse
	Transition time.Duration // how long pressure is reported after a threshold was last met
	Now        func() time.Time

	mu    sync.Mutex
	since map[int]time.Time    // when a threshold was first met without interruption
	last  map[Signal]time.Time // when a threshold of the signal was last met
}

// Met is a threshold for which a pod must be evicted.
type Met struct {
	Threshold
	Observation
	Limit int64 // the minimum
}

// Measure measures the signals and returns the first threshold that has been met for its
// grace period; nil if there is none.
func (m *Monitor) Measure() *Met {
	now, read := m.Now(), m.Read()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.since == nil {
		m.since, m.last = map[int]time.Time{}, map[Signal]time.Time{}
	}
	var first *Met
	for i, t := range m.Thresholds {
		o, ok := read[t.Signal]
		limit := t.Minimum.Of(o.Capacity)
		began, met := m.since[i]
		if met { // it is over only when the minimum reclaim is reached, too
			limit += t.Reclaim.Of(o.Capacity)
		}
		if !ok || o.Available >= limit {
			delete(m.since, i)
			continue
		}
		if !met {
			began = now
			m.since[i] = now
		}
		m.last[t.Signal] = now
		if first == nil && now.Sub(began) >= t.Grace {
			first = &Met{Threshold: t, Observation: o, Limit: t.Minimum.Of(o.Capacity)}
		}
	}
	return first
}

// Pressure returns the values of the node conditions MemoryPressure and DiskPressure: a
// threshold is met, or was met within the transition period.
func (m *Monitor) Pressure() (memory, disk bool) {
	m.Measure()
	now := m.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for s, at := range m.last {
		if now.Sub(at) >= m.Transition {
			continue
		}
		if s == Memory {
			memory = true
		} else {
			disk = true
		}
	}
	return memory, disk
}
