package traffic

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

func TestCheck(t *testing.T) {
	const never = int64(1<<63 - 1)
	op := func(client int, begin, end int64, c call, a answer) porcupine.Operation {
		c.register = "a"
		return porcupine.Operation{ClientId: client, Input: c, Call: begin, Output: a, Return: end}
	}
	read := func(client int, begin, end int64, value string) porcupine.Operation {
		return op(client, begin, end, call{kind: "read"}, answer{value: value})
	}
	one := op(1, 1, 2, call{kind: "write", next: "1"}, answer{swapped: true})
	for _, row := range []struct {
		name string
		good bool
		ops  []porcupine.Operation
	}{
		{"a read sees the last write", true, []porcupine.Operation{one, read(2, 3, 4, "1")}},
		{"a stale read", false, []porcupine.Operation{one, read(2, 3, 4, "")}},
		{"a read during the write", true, []porcupine.Operation{one, read(2, 1, 2, "")}},
		{"an unknown write appears later", true, []porcupine.Operation{
			op(1, 1, never, call{kind: "write", next: "1"}, answer{unknown: true}), read(2, 3, 4, ""), read(2, 5, 6, "1"),
		}},
		{"an unknown write comes and goes", false, []porcupine.Operation{
			op(1, 1, never, call{kind: "write", next: "1"}, answer{unknown: true}), read(2, 3, 4, "1"), read(2, 5, 6, ""),
		}},
		{"two swaps of one value", false, []porcupine.Operation{
			op(1, 1, 2, call{kind: "swap", next: "1"}, answer{swapped: true}), op(2, 1, 2, call{kind: "swap", next: "2"}, answer{swapped: true}),
		}},
		{"one of two swaps", true, []porcupine.Operation{
			op(1, 1, 2, call{kind: "swap", next: "1"}, answer{swapped: true}), op(2, 1, 2, call{kind: "swap", next: "2"}, answer{}),
		}},
		{"an unknown swap that lost", true, []porcupine.Operation{
			op(1, 1, never, call{kind: "swap", next: "1"}, answer{unknown: true}), op(2, 1, 2, call{kind: "swap", next: "2"}, answer{swapped: true}), read(3, 3, 4, "2"),
		}},
	} {
		r := &Registers{ops: row.ops}
		if _, _, err := r.Check(time.Minute); (err == nil) != row.good {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}
