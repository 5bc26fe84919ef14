package crd

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/util/jsonpath"
)

// column is a column of the table form.
type column struct {
	metav1.TableColumnDefinition
	path *jsonpath.JSONPath
}

// columnsOf returns the columns that a version defines, or the age if it defines none.
func columnsOf(defined []apiextensionsv1.CustomResourceColumnDefinition) (out []column) {
	if len(defined) == 0 {
		defined = []apiextensionsv1.CustomResourceColumnDefinition{{
			Name: "Age", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"], JSONPath: ".metadata.creationTimestamp",
		}}
	}
	for _, c := range defined {
		description := c.Description
		if description == "" {
			description = "Custom resource definition column (in JSONPath format): " + c.JSONPath
		}
		if path := parsePath(c.JSONPath); path != nil {
			out = append(out, column{metav1.TableColumnDefinition{
				Name: c.Name, Type: c.Type, Format: c.Format, Description: description, Priority: c.Priority,
			}, path})
		}
	}
	return out
}

// parsePath parses a JSON path of a definition. It returns nil if that fails, which the
// validation of definitions prevents.
func parsePath(text string) *jsonpath.JSONPath {
	path := jsonpath.New("").AllowMissingKeys(true)
	if path.Parse("{"+text+"}") != nil {
		return nil
	}
	return path
}

// find returns the first value at a path, or nil. It is safe for concurrent use.
func find(path *jsonpath.JSONPath, content map[string]any) any {
	own := *path // the search has state
	results, err := own.FindResults(content)
	if err != nil || len(results) == 0 || len(results[0]) == 0 {
		return nil
	}
	return results[0][0].Interface()
}

func (r *rules) columnDefinitions() []metav1.TableColumnDefinition {
	out := []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]}}
	for _, c := range r.columns {
		out = append(out, c.TableColumnDefinition)
	}
	return out
}

// row returns the cells of an object.
func (r *rules) row(u *unstructured.Unstructured, now time.Time) []any {
	cells := []any{u.GetName()}
	for _, c := range r.columns {
		cells = append(cells, c.cell(find(c.path, u.Object), now))
	}
	return cells
}

// cell returns a value as the type of the column requires, or nil if it is not of that
// type.
func (c *column) cell(value any, now time.Time) any {
	if value == nil {
		return nil
	}
	switch c.Type {
	case "integer", "number":
		return number(value, c.Type == "integer")
	case "boolean":
		if b, ok := value.(bool); ok {
			return b
		}
	case "string":
		var text bytes.Buffer
		own := *c.path
		if own.PrintResults(&text, []reflect.Value{reflect.ValueOf(value)}) == nil {
			return text.String()
		}
	case "date":
		if text, ok := value.(string); ok {
			return since(text, now)
		}
	}
	return nil
}

// number returns a JSON number as an integer or as a float, or nil.
func number(value any, integer bool) any {
	switch n := value.(type) {
	case int64:
		if integer {
			return n
		}
		return float64(n)
	case float64:
		if integer {
			return int64(n)
		}
		return n
	}
	return nil
}

// since returns the time since a timestamp in short form.
func since(text string, now time.Time) string {
	var t metav1.Time
	if err := t.UnmarshalQueryParameter(text); err != nil {
		return "<invalid>"
	}
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(t.Time))
}

// selectable is a field that field selectors may use.
type selectable struct {
	name string
	path *jsonpath.JSONPath
}

func selectableOf(defined []apiextensionsv1.SelectableField) (out []selectable) {
	for _, f := range defined {
		if path := parsePath(f.JSONPath); path != nil {
			out = append(out, selectable{strings.TrimPrefix(f.JSONPath, "."), path})
		}
	}
	return out
}

// selectable returns the selectable fields of an object; a missing one is "".
func (r *rules) selectable(u *unstructured.Unstructured) fields.Set {
	out := fields.Set{}
	for _, f := range r.fields {
		out[f.name] = ""
		if value := find(f.path, u.Object); value != nil {
			out[f.name] = fmt.Sprint(value)
		}
	}
	return out
}
