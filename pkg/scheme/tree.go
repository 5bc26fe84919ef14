package scheme

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// TreeJSON encodes a tree as in an unstructured.Unstructured: maps, slices, strings,
// int64, float64, bool and nil. It is json.Marshal without reflection, several times
// faster.
func TreeJSON(tree any) ([]byte, error) { return appendTree(make([]byte, 0, 1024), tree) }

func appendTree(out []byte, tree any) ([]byte, error) {
	switch v := tree.(type) {
	case map[string]any:
		if v != nil {
			return appendMap(out, v)
		}
	case []any:
		if v != nil {
			return appendSlice(out, v)
		}
	case string:
		return appendString(out, v), nil
	case int64:
		return strconv.AppendInt(out, v, 10), nil
	case bool:
		return strconv.AppendBool(out, v), nil
	case nil:
	default:
		text, err := json.Marshal(v)
		return append(out, text...), err
	}
	return append(out, "null"...), nil
}

func appendMap(out []byte, m map[string]any) ([]byte, error) {
	var few [16]string // of most maps: on the stack
	keys := slices.AppendSeq(few[:0], maps.Keys(m))
	slices.Sort(keys)
	out = append(out, '{')
	for i, key := range keys {
		if i > 0 {
			out = append(out, ',')
		}
		var err error
		if out, err = appendTree(append(appendString(out, key), ':'), m[key]); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

func appendSlice(out []byte, s []any) ([]byte, error) {
	out = append(out, '[')
	for i, item := range s {
		if i > 0 {
			out = append(out, ',')
		}
		var err error
		if out, err = appendTree(out, item); err != nil {
			return nil, err
		}
	}
	return append(out, ']'), nil
}

// appendString encodes strings that need no escapes itself.
func appendString(out []byte, s string) []byte {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c >= 0x7f, c == '"', c == '\\', c == '<', c == '>', c == '&':
			text, _ := json.Marshal(s) // never fails for a string
			return append(out, text...)
		}
	}
	out = append(out, '"')
	out = append(out, s...)
	return append(out, '"')
}
