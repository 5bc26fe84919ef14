package netrules

import (
	"maps"
	"slices"
	"strings"
)

// The tables that contain our chains.
const (
	NAT    = "nat"
	Filter = "filter"
	Raw    = "raw" // before connection tracking; not all kernels support our matches there
)

// Tables returns the tables in the order in which they are written.
func Tables() []string { return []string{Filter, NAT, Raw} }

// Chain identifies a chain of a table.
type Chain struct{ Table, Name string }

func (c Chain) String() string { return c.Table + "/" + c.Name }

func compareChains(a, b Chain) int {
	if d := strings.Compare(a.Table, b.Table); d != 0 {
		return d
	}
	return strings.Compare(a.Name, b.Name)
}

// Fragment is the contribution of one contributor: rules by chain. A chain may have
// many contributors; it exists while it has at least one. The zero value is empty.
type Fragment struct {
	rules    map[Chain][]string
	branches map[Chain]branch
}

// branch is the rule by which a parent chain jumps to a shared chain.
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

// Add appends a rule that consists of parts in iptables syntax. It skips empty parts.
func (f *Fragment) Add(c Chain, parts ...string) {
	f.Ensure(c)
	f.rules[c] = append(f.rules[c], join(parts))
}

// Branch adds a rule to parent that matches parts and jumps to c. The rule exists while
// c has any contributor. All contributors of c must pass the same parent and parts.
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

// Set is the complete desired state. Put and Remove record which chains they change,
// so that Changes costs only as much as the change. It is not safe for concurrent use.
type Set struct {
	fragments map[string]Fragment
	chains    map[Chain]*chain
	touched   map[Chain]struct{}
	applied   map[Chain][]string // the kernel's chains as of the last Commit
}

type chain struct {
	from   map[string][]string // by contributor
	branch branch              // zero: no parent jumps to it
}

// NewSet returns an empty set. It assumes that the kernel has none of our chains.
func NewSet() *Set {
	return &Set{
		fragments: map[string]Fragment{},
		chains:    map[Chain]*chain{},
		touched:   map[Chain]struct{}{},
		applied:   map[Chain][]string{},
	}
}

// Put replaces the fragment of a contributor. The rules of a chain are ordered by the
// names of their contributors. The caller must not modify f afterwards.
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

// Remove removes the fragment of a contributor.
func (s *Set) Remove(contributor string) { s.Put(contributor, Fragment{}) }

// contribute sets a contributor's rules of a chain, creating the chain and its branch.
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

// withdraw removes a contributor's rules from a chain. A chain without contributors
// is removed with its branch.
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

// Rules returns the rules of a chain, and whether the chain is desired. The caller must
// not modify the result.
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

// Count returns the number of applied rules in a table.
func (s *Set) Count(table string) int {
	n := 0
	for c, rs := range s.applied {
		if c.Table == table {
			n += len(rs)
		}
	}
	return n
}

// Changes returns the changes since the last Commit: the chains that differ and the
// chains to remove. It does not change the set.
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

// Full returns the batch that produces the desired state from any state of the kernel:
// it writes every desired chain and removes the others in existing.
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

// Commit records that the batch was applied to the kernel.
func (s *Set) Commit(b Batch) {
	for c, rs := range b.Write {
		s.applied[c] = rs
	}
	for _, c := range b.Delete {
		delete(s.applied, c)
	}
	s.touched = map[Chain]struct{}{} // not cleared: clear costs as much as the largest size it ever had
}

// Drift compares the numbers of rules by chain in the kernel with the applied state and
// returns the batch that repairs differences. counts needs to have only our chains.
func (s *Set) Drift(counts map[Chain]int) Batch {
	b := Batch{Write: map[Chain][]string{}}
	for c, rs := range s.applied {
		if n, exists := counts[c]; !exists || n != len(rs) {
			b.Write[c] = rs
		}
	}
	for c, n := range counts {
		if _, known := s.applied[c]; !known && n > 0 { // empty chains are harmless, and a foreign rule may refer to them
			b.Delete = append(b.Delete, c)
		}
	}
	slices.SortFunc(b.Delete, compareChains)
	return b
}
