package topology

import (
	"cmp"
	"iter"
	"math/bits"
)

// Mask is a set of NUMA nodes. 0 stands for any node.
type Mask uint64

// maxNodes is the number of ids that a Mask can hold.
const maxNodes = 64

// Of returns the mask of the nodes. Ids of 64 and more cannot be represented: New
// refuses such machines.
func Of(nodes ...int) Mask {
	var m Mask
	for _, n := range nodes {
		m |= 1 << n
	}
	return m
}

// Has reports whether the node is in the mask.
func (m Mask) Has(node int) bool { return m&(1<<node) != 0 }

// Count returns the number of nodes.
func (m Mask) Count() int { return bits.OnesCount64(uint64(m)) }

// Within reports whether all nodes of m are in other.
func (m Mask) Within(other Mask) bool { return m&^other == 0 }

// Nodes returns the ids in ascending order.
func (m Mask) Nodes() []int {
	var out []int
	for rest := uint64(m); rest != 0; rest &= rest - 1 {
		out = append(out, bits.TrailingZeros64(rest))
	}
	return out
}

// Subsets yields every set of nodes of m but the empty one.
func (m Mask) Subsets() iter.Seq[Mask] {
	return func(yield func(Mask) bool) {
		for sub := (Mask(0) - m) & m; sub != 0; sub = (sub - m) & m {
			if !yield(sub) {
				return
			}
		}
	}
}

// narrower orders masks: fewer nodes first, then lower ids.
func narrower(a, b Mask) int {
	return cmp.Or(cmp.Compare(a.Count(), b.Count()), cmp.Compare(a, b))
}

// Hint says that a provider can serve a request from these nodes. A preferred hint
// uses as few nodes as the machine permits.
type Hint struct {
	Nodes     Mask // 0: any
	Preferred bool
}

// Prefer marks the hints with the fewest nodes that could serve the request on an
// idle machine.
func Prefer(hints []Hint, fewest int) []Hint {
	for i := range hints {
		hints[i].Preferred = hints[i].Nodes.Count() == fewest
	}
	return hints
}
