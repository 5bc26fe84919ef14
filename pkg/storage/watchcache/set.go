package watchcache

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// Set holds the labels of an object, or its fields for selectors. It takes a third of the memory
// of a map: objects with the same names share them. It is immutable and implements labels.Labels
// and fields.Fields.
type Set struct {
	names  *[]string // sorted; nil if there are none
	values []string  // in the order of names
}

// NewSet returns a set that shares nothing with others.
func NewSet(from map[string]string) Set { return new(texts).set("", from) }

// Get returns the value of a name, "" if the set does not have it.
func (s *Set) Get(name string) string {
	value, _ := s.Lookup(name)
	return value
}

// Has reports whether the set has a name.
func (s *Set) Has(name string) bool {
	_, ok := s.Lookup(name)
	return ok
}

// Lookup returns the value of a name, and whether the set has it.
func (s *Set) Lookup(name string) (value string, ok bool) {
	if s.names == nil {
		return "", false
	}
	for i, n := range *s.names { // they are few
		if n == name {
			return s.values[i], true
		}
	}
	return "", false
}

// Limits of texts. A full table is cleared before the next entry.
const (
	mostTexts   = 4096
	longestText = 64 // bytes
)

// texts keeps strings that many objects of a cache have once in memory. Safe for concurrent use.
type texts struct {
	mu     sync.Mutex
	values map[string]string
	names  map[string]*[]string // by the names, joined
	recent [2]*[]string         // most often the next set has the names of one of the last two: labels and fields
}

// set returns the set of what a map holds. Values that key contains share its memory.
func (t *texts) set(key string, from map[string]string) Set {
	if len(from) == 0 {
		return Set{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	names := t.namesLocked(from)
	out := Set{names, make([]string, len(*names))}
	for i, name := range *names {
		value := from[name]
		if at := strings.LastIndex(key, value); at >= 0 {
			out.values[i] = key[at : at+len(value)]
		} else {
			out.values[i] = t.oneLocked(value)
		}
	}
	return out
}

func (t *texts) namesLocked(from map[string]string) *[]string {
	for _, names := range t.recent {
		if names != nil && areKeys(*names, from) {
			return names
		}
	}
	names := t.listLocked(from)
	t.recent = [2]*[]string{names, t.recent[0]}
	return names
}

// areKeys reports whether the distinct names are the keys of a map.
func areKeys(names []string, of map[string]string) bool {
	if len(names) != len(of) {
		return false
	}
	for _, name := range names {
		if _, ok := of[name]; !ok {
			return false
		}
	}
	return true
}

func (t *texts) listLocked(from map[string]string) *[]string {
	names := slices.AppendSeq(make([]string, 0, len(from)), maps.Keys(from))
	slices.Sort(names)
	joined := strings.Join(names, "\x00")
	known, ok := t.names[joined]
	if ok {
		return known
	}
	if t.names == nil || len(t.names) == mostTexts {
		t.names = map[string]*[]string{}
	}
	t.names[joined] = &names
	return &names
}

func (t *texts) oneLocked(text string) string {
	if len(text) > longestText {
		return text
	}
	if known, ok := t.values[text]; ok {
		return known
	}
	if t.values == nil || len(t.values) == mostTexts {
		t.values = map[string]string{}
	}
	t.values[text] = text
	return text
}
