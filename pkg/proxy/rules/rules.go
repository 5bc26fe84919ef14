package rules

import (
	"maps"
	"slices"
	"strings"
)

// The tables we write to.
const (
	NAT    = "nat"
	Filter = "filter"
	Raw    = "raw" // where the kernel can match by it: packets before connections
)

// Tables are all tables we write to, in the order they are written.
func Tables() []string { return []string{Filter, NAT, Raw} }

// Chain names one chain of one table.
type Chain struct{ Table, Name string }

func (c Chain) String() string { return c.Table + "/" + c.Name }

func compareChains(a, b Chain) int {
	if d := strings.Compare(a.Table, b.Table); d != 0 {
		return d
	}
	return strings.Compare(a.Name, b.Name)
}

// Fragment is what one contributor wants: rules by chain. A chain may have
// many contributors; it exists while it has at least one.
type Fragment struct {
	rules    map[Chain][]string
	branches map[Chain]branch
}

// branch is how a parent chain reaches a chain that several contributors share.
type branch struct {
	parent Chain
	rule   string
}

// Ensure makes the chain exist, even without rules.
func (f *Fragment) Ensure(c Chain) {
	if f.rules == nil {
		f.rules = map[Chain][]string{}
	}
	if _, there := f.rules[c]; !there {
		f.rules[c] = nil
	}
}

// Add appends a rule, made of parts of iptables syntax. Empty parts vanish.
func (f *Fragment) Add(c Chain, parts ...string) {
	f.Ensure(c)
	f.rules[c] = append(f.rules[c], join(parts))
}

// Branch hangs chain c below parent: the parent has the given rule, ending in a
// jump to c, for as long as c has any contributor. All contributors of c must
// say the same.
func (f *Fragment) Branch(c, parent Chain, parts ...string) {
	if f.branches == nil {
		f.branches = map[Chain]branch{}
	}
	f.Ensure(c)
	f.branches[c] = branch{parent, join(append(parts, Jump(c.Name)))}
}

func join(parts []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(parts), func(p string) bool { return p == "" }), " ")
}

// Set is the whole desired state. Its cost per change follows the change: Put
// and Remove note which chains they touched, Take hands out those alone.
type Set struct {
	fragments map[string]Fragment
	chains    map[Chain]*chain
	touched   map[Chain]struct{}
	applied   map[Chain][]string // what the kernel has, as far as we were told
}

type chain struct {
	from   map[string][]string // by contributor
	branch branch              // the zero branch: hangs nowhere
}

// NewSet is the empty set; the kernel is taken to have nothing of ours.
func NewSet() *Set {
	return &Set{
		fragments: map[string]Fragment{},
		chains:    map[Chain]*chain{},
		touched:   map[Chain]struct{}{},
		applied:   map[Chain][]string{},
	}
}

// Put replaces everything the contributor said before. Rules of one chain
// stand in the order of their contributors' names.
func (s *Set) Put(contributor string, f Fragment) {
	old := s.fragments[contributor]
	for c := range old.rules {
		if _, still := f.rules[c]; !still {
			s.withdraw(contributor, c)
		}
	}
	for c, rs := range f.rules {
		s.contribute(contributor, c, rs, f.branches[c])
	}
	if len(f.rules) == 0 {
		delete(s.fragments, contributor)
		return
	}
	s.fragments[contributor] = f
}

// Remove takes back everything the contributor said.
func (s *Set) Remove(contributor string) { s.Put(contributor, Fragment{}) }

func (s *Set) contribute(contributor string, c Chain, rs []string, b branch) {
	ch := s.chains[c]
	if ch == nil {
		ch = &chain{from: map[string][]string{}, branch: b}
		s.chains[c] = ch
		s.touched[c] = struct{}{}
		if b != (branch{}) {
			s.contribute(c.Name, b.parent, []string{b.rule}, branch{})
		}
	}
	if old, had := ch.from[contributor]; !had || !slices.Equal(old, rs) {
		ch.from[contributor] = rs
		s.touched[c] = struct{}{}
	}
}

func (s *Set) withdraw(contributor string, c Chain) {
	ch := s.chains[c]
	delete(ch.from, contributor)
	s.touched[c] = struct{}{}
	if len(ch.from) > 0 {
		return
	}
	delete(s.chains, c)
	if ch.branch != (branch{}) {
		s.withdraw(c.Name, ch.branch.parent)
	}
}

// Rules is the text of one chain, and whether it is wanted at all.
func (s *Set) Rules(c Chain) ([]string, bool) {
	ch := s.chains[c]
	if ch == nil {
		return nil, false
	}
	if len(ch.from) == 1 { // most chains have one contributor: share its slice
		for _, rs := range ch.from {
			return rs, true
		}
	}
	var all []string
	for _, contributor := range slices.Sorted(maps.Keys(ch.from)) {
		all = append(all, ch.from[contributor]...)
	}
	return all, true
}

// Count is the number of rules wanted in the table.
func (s *Set) Count(table string) int {
	n := 0
	for c, rs := range s.applied {
		if c.Table == table {
			n += len(rs)
		}
	}
	return n
}

// Changes is what the kernel must be told since the last Commit: the new
// content of every chain that differs, and the chains that are not wanted any
// more. It does not change the set.
func (s *Set) Changes() Batch {
	b := Batch{Write: map[Chain][]string{}}
	for c := range s.touched {
		want, wanted := s.Rules(c)
		have, exists := s.applied[c]
		switch {
		case wanted && !(exists && slices.Equal(want, have)):
			b.Write[c] = want
		case !wanted && exists:
			b.Delete = append(b.Delete, c)
		}
	}
	slices.SortFunc(b.Delete, compareChains)
	return b
}

// Full is the batch that makes everything so whatever the kernel has now:
// every wanted chain, and the deletion of those in existing that nobody wants.
func (s *Set) Full(existing []Chain) Batch {
	b := Batch{Write: make(map[Chain][]string, len(s.chains))}
	for c := range s.chains {
		b.Write[c], _ = s.Rules(c)
	}
	for _, c := range existing {
		if _, wanted := s.chains[c]; !wanted {
			b.Delete = append(b.Delete, c)
		}
	}
	slices.SortFunc(b.Delete, compareChains)
	return b
}

// Commit notes that the kernel took the batch.
func (s *Set) Commit(b Batch) {
	for c, rs := range b.Write {
		s.applied[c] = rs
	}
	for _, c := range b.Delete {
		delete(s.applied, c)
	}
	s.touched = map[Chain]struct{}{} // not cleared: that would cost as much as the fullest it ever was
}

// Drift compares rule counts by chain, as read from the kernel, with what the
// kernel was told, and returns the batch that repairs the difference. Counts
// need hold only chains of ours.
func (s *Set) Drift(counts map[Chain]int) Batch {
	b := Batch{Write: map[Chain][]string{}}
	for c, rs := range s.applied {
		if n, exists := counts[c]; !exists || n != len(rs) {
			b.Write[c] = rs
		}
	}
	for c, n := range counts {
		if _, known := s.applied[c]; !known && n > 0 { // empty ones do no harm, and may be held by a foreign rule
			b.Delete = append(b.Delete, c)
		}
	}
	slices.SortFunc(b.Delete, compareChains)
	return b
}
