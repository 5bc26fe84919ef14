package budget

import (
	"fmt"
	"testing"
)

func list(n int) []any {
	out := make([]any, n)
	for i := range out {
		out[i] = fmt.Sprint("f", i)
	}
	return out
}

func object(fields ...any) map[string]any {
	out := map[string]any{}
	for i := 0; i < len(fields); i += 2 {
		out[fields[i].(string)] = fields[i+1]
	}
	return out
}

func TestMergeWork(t *testing.T) {
	containers := func(n, env int) []any {
		var out []any
		for i := range n {
			out = append(out, object("name", fmt.Sprint(i), "env", list(env)))
		}
		return out
	}
	for name, tc := range map[string]struct {
		reason        string
		stored, patch map[string]any
		ok            bool
	}{
		"finalizers":      {"each is compared with each", object("metadata", object("finalizers", list(8000))), object("metadata", object("finalizers", list(8000))), false},
		"order of many":   {"each is looked up in the order", object("metadata", object("finalizers", list(8000))), object("metadata", object("$setElementOrder/finalizers", list(8000))), false},
		"deletion":        {"the same", object("metadata", object("finalizers", list(8000))), object("metadata", object("$deleteFromPrimitiveList/finalizers", list(8000))), false},
		"inner lists":     {"lists in elements of lists add up", object("spec", object("containers", containers(100, 100))), object("spec", object("containers", containers(100, 100))), false},
		"a large pod":     {"what clients send", object("spec", object("containers", containers(20, 100))), object("spec", object("containers", containers(20, 100))), true},
		"status of nodes": {"few elements of few", object("status", object("conditions", list(10), "images", list(500))), object("status", object("conditions", list(10))), true},
		"no list":         {"fields cost nothing", object("data", object("a", "b")), object("data", object("a", "c")), true},
		"many stored":     {"one element of a patch is looked for once", object("metadata", object("finalizers", list(100_000))), object("metadata", object("finalizers", list(1))), true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := MergeWork(tc.stored, tc.patch); (err == nil) != tc.ok {
				t.Errorf("%v; %s", err, tc.reason)
			}
		})
	}
}
