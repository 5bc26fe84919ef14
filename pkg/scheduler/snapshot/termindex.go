package snapshot

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Shared is a term of pods on nodes, or of nominated pods. Terms that mean the same are one
// Shared, as long as a pod has it.
type Shared struct {
	*Term
	Number uint64 // differs for all Shared of a snapshot, including those that have gone

	owners int
	label  pair
}

// pair is a label that a selector requires; the zero value if it requires no single value.
type pair struct{ key, value string }

// termIndex holds the terms of the cluster by a label that they require of pods, so that the
// cost of finding those that match a pod does not depend on the number of all terms.
type termIndex struct {
	byID    map[string]*Shared
	byLabel map[pair][]*Shared
	last    uint64
}

func newTermIndex() termIndex {
	return termIndex{byID: map[string]*Shared{}, byLabel: map[pair][]*Shared{}}
}

// add returns the shared terms for the terms of a pod.
func (x *termIndex) add(terms []*Term) []*Shared {
	if len(terms) == 0 {
		return nil
	}
	out := make([]*Shared, len(terms))
	for i, t := range terms {
		s := x.byID[t.id]
		if s == nil {
			x.last++
			s = &Shared{Term: t, Number: x.last, label: requiredLabel(t.selector)}
			x.byID[t.id] = s
			x.byLabel[s.label] = append(x.byLabel[s.label], s)
		}
		s.owners++
		out[i] = s
	}
	return out
}

// remove undoes add.
func (x *termIndex) remove(terms []*Shared) {
	for _, s := range terms {
		if s.owners--; s.owners > 0 {
			continue
		}
		delete(x.byID, s.id)
		x.byLabel[s.label] = slices.DeleteFunc(x.byLabel[s.label], func(o *Shared) bool { return o == s })
		if len(x.byLabel[s.label]) == 0 {
			delete(x.byLabel, s.label)
		}
	}
}

// matching returns the terms that select a pod, by number.
func (x *termIndex) matching(p *Pod, namespace map[string]string) []*Shared {
	if len(x.byID) == 0 {
		return nil
	}
	var out []*Shared
	collect := func(list []*Shared) {
		for _, s := range list {
			if s.Matches(p.Pod, namespace) {
				out = append(out, s)
			}
		}
	}
	collect(x.byLabel[pair{}])
	for key, value := range p.Labels {
		collect(x.byLabel[pair{key, value}])
	}
	slices.SortFunc(out, func(a, b *Shared) int { return cmp.Compare(a.Number, b.Number) })
	return out
}

func requiredLabel(s labels.Selector) pair {
	requirements, _ := s.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			if values := r.Values().UnsortedList(); len(values) == 1 {
				return pair{r.Key(), values[0]}
			}
		}
	}
	return pair{}
}
