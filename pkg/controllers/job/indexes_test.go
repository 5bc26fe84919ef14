package job

import (
	"math/rand/v2"
	"testing"
)

func TestIndexes(t *testing.T) {
	for name, row := range map[string]struct {
		reason string
		text   string
		add    []int
		want   string
		total  int
	}{
		"Empty":    {"no index is completed", "", nil, "", 0},
		"Document": {"the example of the API", "1,3-5", []int{7}, "1,3-5,7", 5},
		"Two":      {"two neighbours are listed", "", []int{4, 3}, "3,4", 2},
		"Join":     {"a gap is closed", "0,2", []int{1}, "0-2", 3},
		"Twice":    {"an index is in the set once", "0-2", []int{1, 1}, "0-2", 3},
		"Shrunk":   {"indexes at and above the completions are dropped", "5-12,14", nil, "5-9", 5},
		"Garbage":  {"what cannot be parsed is dropped", "x,1,2-y,-3", nil, "1", 1},
	} {
		s := parseIndexes(row.text, 10).with(row.add...)
		if s.String() != row.want || s.total() != row.total {
			t.Errorf("%s: %s: got %q with %d, want %q with %d", name, row.reason, s, s.total(), row.want, row.total)
		}
	}
}

// TestIndexesAreASet compares random sets with maps.
func TestIndexesAreASet(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var s, other indexes
		in := [2]map[int]bool{{}, {}}
		for range random.IntN(40) {
			a, b := random.IntN(50), random.IntN(50)
			s, other = s.with(a), other.with(b)
			in[0][a], in[1][b] = true, true
		}
		s = parseIndexes(s.String(), 50)
		both := 0
		for i := range 50 {
			if s.has(i) != in[0][i] {
				t.Fatalf("%s has %d: %v", s, i, s.has(i))
			}
			if in[0][i] && in[1][i] {
				both++
			}
		}
		if s.total() != len(in[0]) || common(s, other) != both {
			t.Fatalf("%s has %d, %d in common with %s", s, s.total(), common(s, other), other)
		}
	}
}
