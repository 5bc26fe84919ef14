package nodepressure

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Signal is what is measured, with upstream's name.
type Signal string

// The signals: bytes of memory, and bytes and inodes of the file systems of the
// kubelet's files and of the images.
const (
	Memory      Signal = "memory.available"
	NodeFS      Signal = "nodefs.available"
	NodeInodes  Signal = "nodefs.inodesFree"
	ImageFS     Signal = "imagefs.available"
	ImageInodes Signal = "imagefs.inodesFree"
)

// signals returns all signals in the order in which pods are evicted for them.
func signals() []Signal { return []Signal{Memory, NodeFS, ImageFS, NodeInodes, ImageInodes} }

// Defaults are upstream's thresholds.
func Defaults() []string {
	return []string{"memory.available<100Mi", "nodefs.available<10%", "imagefs.available<15%", "nodefs.inodesFree<5%", "imagefs.inodesFree<5%"}
}

// Amount is a quantity or a fraction of the capacity.
type Amount struct {
	Quantity int64
	Fraction float64 // used if it is not 0
}

// Of returns the amount for a capacity.
func (a Amount) Of(capacity int64) int64 {
	if a.Fraction != 0 {
		return int64(a.Fraction * float64(capacity))
	}
	return a.Quantity
}

// Threshold is the minimum of a signal.
type Threshold struct {
	Signal  Signal
	Minimum Amount
	Soft    bool
	Grace   time.Duration // soft: how long the signal must be below the minimum
	Reclaim Amount        // by how much the signal must exceed the minimum afterwards
}

// Config is the configuration in the form of upstream's flags.
type Config struct {
	Hard, Soft []string          // signal<quantity or signal<percentage
	SoftGrace  map[string]string // durations by signal, one for each soft threshold
	Reclaim    map[string]string // quantities or percentages by signal
}

// Parse parses the configuration. Signals that are not of this package are an error. It
// returns all errors, joined.
func Parse(c Config) ([]Threshold, error) {
	var out []Threshold
	var errs []error
	for _, list := range []struct {
		entries []string
		soft    bool
	}{{c.Hard, false}, {c.Soft, true}} {
		seen := map[Signal]bool{}
		for _, entry := range list.entries {
			t, err := parse(entry, list.soft, c)
			if err == nil && seen[t.Signal] {
				err = fmt.Errorf("%q: %s has two thresholds", entry, t.Signal)
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
			seen[t.Signal] = true
			out = append(out, t)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.SoftGrace)) {
		if !slices.ContainsFunc(out, func(t Threshold) bool { return t.Soft && string(t.Signal) == name }) {
			errs = append(errs, fmt.Errorf("grace period of %s, which has no soft threshold", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Reclaim)) {
		if !slices.Contains(signals(), Signal(name)) {
			errs = append(errs, fmt.Errorf("minimum reclaim of %s, which is no signal", name))
		}
	}
	slices.SortStableFunc(out, func(a, b Threshold) int {
		return slices.Index(signals(), a.Signal) - slices.Index(signals(), b.Signal)
	})
	return out, errors.Join(errs...)
}

func parse(entry string, soft bool, c Config) (Threshold, error) {
	name, value, ok := strings.Cut(strings.TrimSpace(entry), "<")
	if !ok {
		return Threshold{}, fmt.Errorf("%q: want signal<quantity or signal<percentage", entry)
	}
	t := Threshold{Signal: Signal(name), Soft: soft}
	if !slices.Contains(signals(), t.Signal) {
		return t, fmt.Errorf("%q: %s is no signal", entry, name)
	}
	var err error
	if t.Minimum, err = parseAmount(value); err != nil {
		return t, fmt.Errorf("%q: %w", entry, err)
	}
	if text, ok := c.Reclaim[name]; ok {
		if t.Reclaim, err = parseAmount(text); err != nil {
			return t, fmt.Errorf("minimum reclaim of %s: %w", name, err)
		}
	}
	if !soft {
		return t, nil
	}
	text, ok := c.SoftGrace[name]
	if !ok {
		return t, fmt.Errorf("%q: a soft threshold needs a grace period", entry)
	}
	if t.Grace, err = time.ParseDuration(text); err != nil || t.Grace < 0 {
		return t, fmt.Errorf("grace period of %s: %q is not a duration", name, text)
	}
	return t, nil
}

func parseAmount(text string) (Amount, error) {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		n, err := strconv.ParseFloat(percent, 64)
		if err != nil || !(n >= 0 && n <= 100) {
			return Amount{}, fmt.Errorf("invalid percentage %q", text)
		}
		return Amount{Fraction: n / 100}, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return Amount{}, err
	}
	if q.Sign() < 0 {
		return Amount{}, fmt.Errorf("negative quantity %q", text)
	}
	return Amount{Quantity: q.Value()}, nil
}
