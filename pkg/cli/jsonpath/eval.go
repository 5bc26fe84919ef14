package jsonpath

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ErrNotFound says that a value has no such field or element.
type ErrNotFound struct{ What string }

func (e *ErrNotFound) Error() string { return e.What + " is not found" }

// evaluation is one run of a template.
type evaluation struct {
	root    any
	lenient bool // what is missing is nothing, not an error
}

// Execute writes the template over a value made of maps, slices and scalars as
// encoding/json makes them. lenient lets missing fields be nothing.
func (t *Template) Execute(w io.Writer, value any, lenient bool) error {
	e := &evaluation{value, lenient}
	return e.write(w, t.nodes, value)
}

// Find returns all values that the template's expressions find.
func (t *Template) Find(value any, lenient bool) ([]any, error) {
	e := &evaluation{value, lenient}
	var out []any
	for _, n := range t.nodes {
		if x, ok := n.(expression); ok {
			found, err := e.find(x.path, value)
			if err != nil {
				return nil, err
			}
			out = append(out, found...)
		}
	}
	return out, nil
}

func (e *evaluation) write(w io.Writer, nodes []node, current any) error {
	for _, n := range nodes {
		switch n := n.(type) {
		case text:
			if _, err := io.WriteString(w, string(n)); err != nil {
				return err
			}
		case expression:
			found, err := e.find(n.path, current)
			if err != nil {
				return err
			}
			words := make([]string, len(found))
			for i, v := range found {
				words[i] = Text(v)
			}
			if _, err := io.WriteString(w, strings.Join(words, " ")); err != nil {
				return err
			}
		case loop:
			found, err := e.find(n.over, current)
			if err != nil {
				return err
			}
			for _, v := range found {
				if err := e.write(w, n.body, v); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Text is a value as templates print it: strings bare, maps and lists as JSON.
func Text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case map[string]any, []any:
		data, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		return string(data)
	}
	return fmt.Sprint(v)
}

func (e *evaluation) find(p path, current any) ([]any, error) {
	values := []any{current}
	if p.root {
		values = []any{e.root}
	}
	for i, s := range p.steps {
		var next []any
		for _, v := range values {
			found, err := e.step(s, v)
			if err != nil {
				// Below .. only some of the values have the field: that is the point.
				if _, missing := err.(*ErrNotFound); missing && (e.lenient || i > 0 && isDescend(p.steps[i-1])) {
					continue
				}
				return nil, err
			}
			next = append(next, found...)
		}
		values = next
	}
	return values, nil
}

func isDescend(s step) bool {
	_, ok := s.(descend)
	return ok
}

func (e *evaluation) step(s step, v any) ([]any, error) {
	switch s := s.(type) {
	case field:
		return getField(v, string(s))
	case wildcard:
		return children(v), nil
	case descend:
		return below(v, nil), nil
	case index:
		return getIndex(v, int(s))
	case section:
		return getSection(v, s)
	case union:
		var out []any
		for _, p := range s {
			found, err := e.find(p, v)
			if err != nil {
				return nil, err
			}
			out = append(out, found...)
		}
		return out, nil
	case filter:
		var out []any
		for _, child := range elements(v) {
			ok, err := e.holds(s, child)
			if err != nil {
				return nil, err
			}
			if ok {
				out = append(out, child)
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("unknown step %T", s)
}

func getField(v any, name string) ([]any, error) {
	if m, ok := v.(map[string]any); ok {
		if child, ok := m[name]; ok {
			return []any{child}, nil
		}
	}
	return nil, &ErrNotFound{name}
}

// children are a list's elements, or a map's values in the order of their names.
func children(v any) []any {
	switch v := v.(type) {
	case []any:
		return v
	case map[string]any:
		out := make([]any, 0, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out = append(out, v[k])
		}
		return out
	}
	return nil
}

// elements are what a filter looks at: those of a list, or a single value itself.
func elements(v any) []any {
	if list, ok := v.([]any); ok {
		return list
	}
	return children(v)
}

// below is the value and everything in it, itself first.
func below(v any, into []any) []any {
	into = append(into, v)
	for _, child := range children(v) {
		into = below(child, into)
	}
	return into
}

func getIndex(v any, i int) ([]any, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, &ErrNotFound{fmt.Sprintf("[%d]", i)}
	}
	at := i
	if at < 0 {
		at += len(list)
	}
	if at < 0 || at >= len(list) {
		return nil, &ErrNotFound{fmt.Sprintf("array index %d of %d elements", i, len(list))}
	}
	return []any{list[at]}, nil
}

func getSection(v any, s section) ([]any, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, &ErrNotFound{"a list for [from:to]"}
	}
	bound := func(n *int, otherwise int) int {
		if n == nil {
			return otherwise
		}
		at := *n
		if at < 0 {
			at += len(list)
		}
		return min(max(at, 0), len(list))
	}
	by := 1
	if s.by != nil {
		by = *s.by
	}
	var out []any
	for i := bound(s.from, 0); i < bound(s.to, len(list)); i += by {
		out = append(out, list[i])
	}
	return out, nil
}

// holds decides a filter for one value. What is missing equals nothing.
func (e *evaluation) holds(f filter, v any) (bool, error) {
	quiet := &evaluation{e.root, true}
	left, err := quiet.operand(f.left, v)
	if err != nil || len(left) == 0 {
		return false, err
	}
	if f.op == "" {
		return true, nil
	}
	right, err := quiet.operand(f.right, v)
	if err != nil || len(right) == 0 {
		return false, err
	}
	if len(left) > 1 || len(right) > 1 {
		return false, fmt.Errorf("a comparison needs one value on each side")
	}
	return compare(left[0], right[0], f.op)
}

func (e *evaluation) operand(o operand, v any) ([]any, error) {
	if o.path == nil {
		return []any{o.literal}, nil
	}
	return e.find(*o.path, v)
}

func compare(a, b any, op string) (bool, error) {
	order, comparable := 0, true
	x, xNumber := number(a)
	y, yNumber := number(b)
	switch {
	case xNumber && yNumber:
		order = cmp.Compare(x, y)
	default:
		s, aText := a.(string)
		t, bText := b.(string)
		if comparable = aText && bText; comparable {
			order = strings.Compare(s, t)
		}
	}
	switch op {
	case "==":
		return comparable && order == 0 || !comparable && Text(a) == Text(b), nil
	case "!=":
		return comparable && order != 0 || !comparable && Text(a) != Text(b), nil
	}
	if !comparable {
		return false, fmt.Errorf("%s and %s have no order", Text(a), Text(b))
	}
	switch op {
	case "<":
		return order < 0, nil
	case "<=":
		return order <= 0, nil
	case ">":
		return order > 0, nil
	}
	return order >= 0, nil
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case int:
		return float64(v), true
	case float64:
		return v, true
	case json.Number:
		f, err := v.Float64()
		return f, err == nil
	}
	return 0, false
}
