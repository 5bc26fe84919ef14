package nodeipam

import (
	"errors"
	"net/netip"
	"testing"
)

func TestPool(t *testing.T) {
	prefix := netip.MustParsePrefix
	tests := map[string]struct {
		reason string
		cidr   string
		size   int
		used   []string
		want   []string // then it is full
	}{
		"InOrder":  {"one after the other", "10.0.0.0/22", 24, nil, []string{"10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24"}},
		"Used":     {"what a node has is not given again", "10.0.0.0/22", 24, []string{"10.0.0.0/24", "10.0.2.0/24"}, []string{"10.0.1.0/24", "10.0.3.0/24"}},
		"Services": {"the services' addresses are nobody's", "10.0.0.0/22", 24, []string{"10.0.2.0/23"}, []string{"10.0.0.0/24", "10.0.1.0/24"}},
		"Small":    {"a part of a subnet that is in use makes it used", "10.0.0.0/23", 24, []string{"10.0.0.128/25"}, []string{"10.0.1.0/24"}},
		"Around":   {"a range around all leaves nothing", "10.0.0.0/23", 24, []string{"10.0.0.0/8"}, nil},
		"Outside":  {"other ranges are no concern", "10.0.0.0/24", 24, []string{"10.1.0.0/24"}, []string{"10.0.0.0/24"}},
		"IPv6":     {"the same for IPv6", "fd00::/63", 64, nil, []string{"fd00::/64", "fd00:0:0:1::/64"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := newPool(prefix(tc.cidr), tc.size)
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range tc.used {
				p.mark(prefix(u))
			}
			for _, want := range tc.want {
				if got, err := p.take(); err != nil || got != prefix(want) {
					t.Fatalf("%s: got %v, %v, want %s", tc.reason, got, err, want)
				}
			}
			if got, err := p.take(); !errors.Is(err, errFull) {
				t.Fatalf("%s: got %v, %v, want nothing more", tc.reason, got, err)
			}
			if len(tc.want) > 0 {
				p.free(prefix(tc.want[0]))
				if got, err := p.take(); err != nil || got != prefix(tc.want[0]) {
					t.Errorf("what was given back is given again; got %v, %v", got, err)
				}
			}
		})
	}
	for _, size := range []int{8, 33} {
		if _, err := newPool(prefix("10.0.0.0/16"), size); err == nil {
			t.Errorf("/%d in a /16", size)
		}
	}
}
