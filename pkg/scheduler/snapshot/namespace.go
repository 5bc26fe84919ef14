package snapshot

import "maps"

// SetNamespace adds a namespace or changes its labels. It reports whether
// something changed.
func (s *Snapshot) SetNamespace(name string, labels map[string]string) bool {
	if old, ok := s.namespaces[name]; ok && maps.Equal(old, labels) {
		return false
	}
	s.namespaces[name] = labels
	return true
}

// RemoveNamespace removes a namespace.
func (s *Snapshot) RemoveNamespace(name string) { delete(s.namespaces, name) }

// Derive sets the fields of a pending pod that depend on the cluster.
func (s *Snapshot) Derive(p *Pod) {
	p.Matching = s.terms.matching(p, s.namespaces[p.Namespace])
	p.Siblings = nil
	if len(p.Spec.TopologySpreadConstraints) == 0 {
		p.Siblings = s.siblings.of(p.Pod)
	}
	p.Resolved = nil
	for _, t := range p.Terms {
		p.Resolved = append(p.Resolved, t.resolved(s.namespaces))
	}
}
