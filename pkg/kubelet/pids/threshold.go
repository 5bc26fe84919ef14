package pids

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Threshold is the number of available process ids below which pods are
// evicted. The zero value is never met.
type Threshold struct {
	Count    int64   // of process ids
	Fraction float64 // of the maximum; used if Count is 0
}

// Of returns the threshold of a node whose maximum is most.
func (t Threshold) Of(most int64) int64 {
	if t.Count > 0 {
		return t.Count
	}
	return int64(t.Fraction * float64(most))
}

// ParseThreshold parses eviction thresholds in upstream's form, such as
// pid.available<10%. Signals other than pid.available are an error. 0% disables
// the eviction. The last entry wins.
func ParseThreshold(entries []string) (Threshold, error) {
	var t Threshold
	for _, entry := range entries {
		signal, value, ok := strings.Cut(strings.TrimSpace(entry), "<")
		if !ok {
			return Threshold{}, fmt.Errorf("%q: want signal<quantity or signal<percentage", entry)
		}
		if signal != Signal {
			return Threshold{}, fmt.Errorf("%q: the kubelet evicts by %s only", entry, Signal)
		}
		var err error
		if t, err = parseValue(value); err != nil {
			return Threshold{}, fmt.Errorf("%q: %w", entry, err)
		}
	}
	return t, nil
}

// parseValue parses a quantity or a percentage.
func parseValue(text string) (Threshold, error) {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		n, err := strconv.ParseFloat(percent, 64)
		if err != nil || !(n >= 0 && n <= 100) {
			return Threshold{}, fmt.Errorf("invalid percentage %q", text)
		}
		return Threshold{Fraction: n / 100}, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return Threshold{}, err
	}
	if q.Sign() < 0 {
		return Threshold{}, fmt.Errorf("negative quantity %q", text)
	}
	return Threshold{Count: q.Value()}, nil
}

// Monitor compares the node's process ids with a threshold. It is safe for
// concurrent use.
type Monitor struct {
	Read       func() (Usage, error)
	Threshold  Threshold
	Transition time.Duration // how long pressure is reported after the threshold was last met
	Now        func() time.Time

	mu  sync.Mutex
	met time.Time // when the threshold was last met
}

// Measure returns the current usage, the threshold, and whether it is met. If the
// usage cannot be read, met is false.
func (m *Monitor) Measure() (u Usage, threshold int64, met bool) {
	u, err := m.Read()
	if err != nil {
		return Usage{}, 0, false
	}
	threshold = m.Threshold.Of(u.Max)
	met = u.Available() < threshold
	if met {
		m.mu.Lock()
		m.met = m.Now()
		m.mu.Unlock()
	}
	return u, threshold, met
}

// Pressure is the value of the node condition PIDPressure: the threshold is met,
// or was met within the transition period.
func (m *Monitor) Pressure() bool {
	if _, _, met := m.Measure(); met {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.met.IsZero() && m.Now().Sub(m.met) < m.Transition
}
