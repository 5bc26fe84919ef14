// Package jsonpath evaluates the templates of -o jsonpath=… as kubectl does:
// text with expressions in braces, applied to a JSON value.
// https://kubernetes.io/docs/reference/kubectl/jsonpath/
package jsonpath

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"strings"

	upstream "k8s.io/client-go/util/jsonpath"
)

// Template is a parsed template. It is safe for concurrent use.
type Template struct {
	text string
}

// Parse parses a template.
func Parse(template string) (*Template, error) {
	if err := upstream.New("jsonpath").Parse(template); err != nil {
		return nil, fmt.Errorf("error parsing jsonpath %s, %w", template, err)
	}
	return &Template{template}, nil
}

// ParsePath parses one expression without surrounding text, in the forms that
// kubectl accepts: {.a.b}, .a.b, a.b or {a.b}.
func ParsePath(expr string) (*Template, error) {
	bare := strings.TrimSpace(expr)
	if inner, ok := strings.CutPrefix(bare, "{"); ok {
		bare, ok = strings.CutSuffix(inner, "}")
		if !ok {
			return nil, fmt.Errorf("unexpected path string %q: missing }", expr)
		}
	}
	if bare == "" || strings.ContainsAny(bare, "{}") {
		return nil, fmt.Errorf("unexpected path string %q: want one path, such as .metadata.name", expr)
	}
	if !strings.ContainsAny(bare[:1], ".[$@") {
		bare = "." + bare
	}
	return Parse("{" + bare + "}")
}

// Execute applies the template to a value of maps, slices and scalars as
// encoding/json makes them, and writes the result. A missing field prints
// nothing if lenient is set, and is an error otherwise.
func (t *Template) Execute(w io.Writer, value any, lenient bool) error {
	j, found, err := t.run(value, lenient)
	if err != nil {
		return err
	}
	for _, results := range found {
		if err := j.PrintResults(w, results); err != nil {
			return err
		}
	}
	return nil
}

// Find returns all values that the template's expressions select.
func (t *Template) Find(value any, lenient bool) ([]any, error) {
	_, found, err := t.run(value, lenient)
	var out []any
	for _, results := range found {
		for _, r := range results {
			out = append(out, r.Interface())
		}
	}
	return out, err
}

// run parses the template for every evaluation: the upstream type keeps state,
// for example about ranges, and is not safe for concurrent use.
func (t *Template) run(value any, lenient bool) (j *upstream.JSONPath, found [][]reflect.Value, err error) {
	defer func() {
		if r := recover(); r != nil { // upstream's reflection panics on unexpected values
			err = fmt.Errorf("evaluate jsonpath %s: %v", t.text, r)
		}
	}()
	j = upstream.New("jsonpath").AllowMissingKeys(lenient)
	if err := j.Parse(t.text); err != nil {
		return nil, nil, err
	}
	found, err = j.FindResults(value)
	return j, found, err
}

// Text formats a value as templates print it: strings without quotes, maps and
// lists as JSON, null as "".
func Text(v any) string {
	if v == nil {
		return ""
	}
	var out bytes.Buffer
	if err := upstream.New("jsonpath").PrintResults(&out, []reflect.Value{reflect.ValueOf(v)}); err != nil {
		return fmt.Sprint(v)
	}
	return out.String()
}
