package podspec

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Changes describes the differences of two specs for an error message, one line for
// each path.
func Changes(old, new any) string {
	var b strings.Builder
	diffValues(&b, "", tree(old), tree(new))
	return b.String()
}

// tree converts v to the maps and lists of its JSON.
func tree(v any) any {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	var out any
	if err := json.Unmarshal(data, &out); err != nil {
		return err.Error()
	}
	return out
}

func diffValues(b *strings.Builder, path string, old, new any) {
	oldMap, ok1 := old.(map[string]any)
	newMap, ok2 := new.(map[string]any)
	if ok1 && ok2 {
		for _, key := range keys(oldMap, newMap) {
			diffValues(b, strings.TrimPrefix(path+"."+key, "."), oldMap[key], newMap[key])
		}
		return
	}
	oldList, ok1 := old.([]any)
	newList, ok2 := new.([]any)
	if ok1 && ok2 && len(oldList) == len(newList) {
		for i := range oldList {
			diffValues(b, fmt.Sprintf("%s[%d]", path, i), oldList[i], newList[i])
		}
		return
	}
	before, after := text(old), text(new)
	if before == after {
		return
	}
	fmt.Fprintf(b, "  %s:\n- \t%s\n+ \t%s\n", path, before, after)
}

func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

// keys returns the sorted keys of both maps.
func keys(a, b map[string]any) []string {
	var out []string
	for _, m := range []map[string]any{a, b} {
		for key := range m {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
