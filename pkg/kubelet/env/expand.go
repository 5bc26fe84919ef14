package env

import (
	"fmt"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Expand replaces $(VAR) references in a command or in arguments. References to
// unknown variables stay as they are; $$ becomes $.
func Expand(texts []string, vars []*runtimeapi.KeyValue) []string {
	values := byName(vars)
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = expand(text, func(name string) (string, bool) {
			v, ok := values[name]
			return v, ok
		})
	}
	return out
}

// ExpandSubPath is Expand for a subPathExpr; an unknown variable is a *ConfigError.
func ExpandSubPath(expr string, vars []*runtimeapi.KeyValue) (string, error) {
	values := byName(vars)
	var unknown string
	path := expand(expr, func(name string) (string, bool) {
		v, ok := values[name]
		if !ok && unknown == "" {
			unknown = name
		}
		return v, ok
	})
	if unknown != "" {
		return "", &ConfigError{fmt.Errorf("missing value for %q", unknown)}
	}
	return path, nil
}

func byName(vars []*runtimeapi.KeyValue) map[string]string {
	m := make(map[string]string, len(vars))
	for _, v := range vars {
		m[v.Key] = string(v.Value)
	}
	return m
}

// expand replaces "$$" by "$" and "$(name)" by the value of name. References that
// lookup does not find and any other "$" stay as they are.
func expand(text string, lookup func(name string) (string, bool)) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		switch {
		case strings.HasPrefix(rest, "$"):
			out.WriteByte('$')
			text = rest[1:]
		case strings.HasPrefix(rest, "("):
			name, after, closed := strings.Cut(rest[1:], ")")
			if !closed {
				out.WriteString("$(")
				text = rest[1:]
				continue
			}
			value, known := lookup(name)
			if !known {
				value = "$(" + name + ")"
			}
			out.WriteString(value)
			text = after
		default:
			out.WriteByte('$')
			text = rest
		}
	}
}
