package describe

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// generic describes a kind without a description of its own: it lists all
// fields.
func (p *page) generic(o *unstructured.Unstructured) {
	p.field(0, "Name", o.GetName())
	p.field(0, "Namespace", o.GetNamespace())
	p.pairs(0, "Labels", o.GetLabels())
	p.annotations(0, o.GetAnnotations())
	p.field(0, "API Version", o.GetAPIVersion())
	p.field(0, "Kind", o.GetKind())
	rest := maps.Clone(o.Object)
	meta, _ := rest["metadata"].(map[string]any)
	meta = maps.Clone(meta)
	for _, shown := range []string{"name", "namespace", "labels", "annotations", "managedFields"} {
		delete(meta, shown)
	}
	rest["metadata"] = meta
	delete(rest, "apiVersion")
	delete(rest, "kind")
	p.tree(0, rest)
}

// tree writes maps and lists, indented by depth.
func (p *page) tree(level int, m map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		name := words(key)
		switch v := m[key].(type) {
		case map[string]any:
			p.line(level, "%s:", name)
			p.tree(level+1, v)
		case []any:
			p.line(level, "%s:", name)
			for _, item := range v {
				if child, ok := item.(map[string]any); ok {
					p.tree(level+1, child)
					continue
				}
				p.line(level+1, "%v", item)
			}
		default:
			p.line(level, "%s:\t%v", name, v)
		}
	}
}

// words converts leaseDurationSeconds to Lease Duration Seconds, and uid to UID.
func words(key string) string {
	parts := strings.Split(spaced(key), " ")
	for i, part := range parts {
		if upper := strings.ToUpper(part); slices.Contains([]string{"API", "URL", "UID", "GUID"}, upper) {
			parts[i] = upper
		}
	}
	return strings.Join(parts, " ")
}

// spaced puts a space before each word of a key, which begins with a capital.
func spaced(key string) string {
	var b strings.Builder
	runes := []rune(key)
	for i, r := range runes {
		upper := r >= 'A' && r <= 'Z'
		if i == 0 && r >= 'a' && r <= 'z' {
			r += 'A' - 'a'
		}
		startsWord := upper && i > 0 && (runes[i-1] >= 'a' && runes[i-1] <= 'z' || i+1 < len(runes) && runes[i+1] >= 'a' && runes[i+1] <= 'z')
		if startsWord {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// fieldsOf writes all fields of v, which has JSON names.
func (p *page) fieldsOf(level int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		return
	}
	var m map[string]any
	if json.Unmarshal(data, &m) == nil {
		p.tree(level, m)
	}
}
