package ttl

import "testing"

func TestNext(t *testing.T) {
	for name, row := range map[string]struct {
		at, nodes, want int
	}{
		"small":                {0, 100, 0},
		"grows":                {0, 101, 1},
		"shrinks a little":     {1, 95, 1},
		"shrinks below":        {1, 89, 0},
		"grows over two steps": {0, 1001, 3},
		"shrinks to nothing":   {4, 0, 0},
		"largest":              {3, 100_000, 4},
	} {
		if got := next(row.at, row.nodes); got != row.want {
			t.Errorf("%s: step %d, want %d", name, got, row.want)
		}
	}
}
