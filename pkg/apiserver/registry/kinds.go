package registry

import (
	"podium/pkg/scheme"
)

// Kinds is every served kind, in discovery order.
func Kinds(s *scheme.Scheme, cfg Config) []*Kind {
	var kinds []*Kind
	for _, k := range s.Kinds() {
		kinds = append(kinds, (Of[scheme.Object]{}).Kind(k))
	}
	return kinds
}
