package topology

import (
	"cmp"
	"maps"
	"slices"
)

// flatten returns the hints of each resource. A provider or a resource without hints
// has no preference; an empty list means that no node can serve the request.
func flatten(all []map[string][]Hint) [][]Hint {
	var out [][]Hint
	for _, provider := range all {
		for _, resource := range slices.Sorted(maps.Keys(provider)) {
			hints := provider[resource]
			switch {
			case hints == nil:
				out = append(out, []Hint{{Preferred: true}})
			case len(hints) == 0:
				out = append(out, []Hint{{}})
			default:
				out = append(out, hints)
			}
		}
	}
	return out
}

// onlySingle keeps the hints of the policy single-numa-node: preferred ones for one
// node or for any.
func onlySingle(resources [][]Hint) [][]Hint {
	out := make([][]Hint, len(resources))
	for i, hints := range resources {
		for _, h := range hints {
			if h.Preferred && h.Nodes.Count() <= 1 {
				out[i] = append(out[i], h)
			}
		}
	}
	return out
}

// merged is the combination of one hint of each resource. It is preferred if all are
// and name the same nodes.
type merged struct {
	Hint
	named bool // a hint has named nodes
}

// with returns the combination with one more hint.
func (m merged) with(h Hint) merged {
	if h.Nodes != 0 {
		if m.named && h.Nodes != m.Nodes {
			m.Preferred = false
		}
		m.Nodes, m.named = m.Nodes&h.Nodes, true
	}
	m.Preferred = m.Preferred && h.Preferred
	return m
}

// merge returns the best combination of one hint of each resource. Without a
// combination it returns all nodes of the machine, not preferred.
//
// The combinations of the first resources with equal results are kept once: their
// number stays below twice the number of masks, whatever the number of resources.
func (m *Manager) merge(resources [][]Hint) Hint {
	found := map[merged]bool{{Hint: Hint{Nodes: m.all, Preferred: true}}: true}
	for _, hints := range resources {
		next := map[merged]bool{}
		for sum := range found {
			for _, h := range hints {
				if c := sum.with(h); c.Nodes != 0 {
					next[c] = true
				}
			}
		}
		found = next
	}
	if len(found) == 0 {
		return Hint{Nodes: m.all}
	}
	fewest := leastNodes(resources)
	best := slices.MinFunc(slices.Collect(maps.Keys(found)), func(a, b merged) int { return m.compare(a.Hint, b.Hint, fewest) })
	return best.Hint
}

// leastNodes returns how many nodes every combination needs at least: the highest of
// the lowest numbers of the resources.
func leastNodes(resources [][]Hint) int {
	out := 0
	for _, hints := range resources {
		least := 0
		for _, h := range hints {
			if n := h.Nodes.Count(); n > 0 && (least == 0 || n < least) {
				least = n
			}
		}
		out = max(out, least)
	}
	return out
}

// compare orders hints, better ones first: preferred before others, then narrower.
// As upstream, hints that are not preferred are best with the number of nodes that
// the request needs at least; then come fewer nodes, as many as possible, then more.
func (m *Manager) compare(a, b Hint, fewest int) int {
	if a.Preferred != b.Preferred {
		if a.Preferred {
			return -1
		}
		return 1
	}
	if !a.Preferred {
		if c := cmp.Compare(excess(a.Nodes, fewest), excess(b.Nodes, fewest)); c != 0 {
			return c
		}
	}
	if m.closest && a.Nodes.Count() == b.Nodes.Count() {
		return cmp.Or(cmp.Compare(m.distance(a.Nodes), m.distance(b.Nodes)), cmp.Compare(a.Nodes, b.Nodes))
	}
	return narrower(a.Nodes, b.Nodes)
}

// excess ranks the number of nodes of a hint that is not preferred.
func excess(nodes Mask, fewest int) int {
	n := nodes.Count()
	if n <= fewest {
		return fewest - n
	}
	return n
}

// distance returns the sum of the distances between the nodes. It compares only
// masks with equal numbers of nodes, for which the sum orders as the average does.
func (m *Manager) distance(nodes Mask) int {
	sum := 0
	for _, a := range nodes.Nodes() {
		for _, b := range nodes.Nodes() {
			sum += m.distances[a][b]
		}
	}
	return sum
}
