package output

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
	"sigs.k8s.io/yaml/kyaml"

	"podium/pkg/cli/jsonpath"
)

// Formats are the values of -o that print whole objects. get handles "wide" and
// tables itself.
const Formats = "json, yaml, kyaml, name, jsonpath=TEMPLATE, jsonpath-file=FILE, go-template=TEMPLATE, go-template-file=FILE, custom-columns=SPEC, custom-columns-file=FILE"

// Printer prints an object, or a list. It may be called several times for one
// stream.
type Printer interface {
	Print(w io.Writer, obj *unstructured.Unstructured) error
}

// Options select the format and its details.
type Options struct {
	Format        string // the value of -o
	NoHeaders     bool
	ManagedFields bool // print managed fields
	StrictMissing bool // a missing field in a template is an error
}

// New returns the printer for a format. It reads the file of the -file formats.
func New(o Options) (Printer, error) {
	name, arg, given := strings.Cut(o.Format, "=")
	if file, isFile := strings.CutSuffix(name, "-file"); isFile {
		data, err := os.ReadFile(arg)
		if err != nil {
			return nil, err
		}
		name, arg = file, string(data)
	}
	switch name {
	case "json", "yaml", "kyaml", "name":
		if given {
			return nil, fmt.Errorf("-o %s takes no argument", name)
		}
	case "jsonpath", "go-template", "template", "custom-columns":
		if arg == "" {
			return nil, fmt.Errorf("-o %s needs an argument: -o %s=TEMPLATE", name, name)
		}
	}
	switch name {
	case "json":
		return cleaning{jsonPrinter{}, o.ManagedFields}, nil
	case "yaml":
		return cleaning{&yamlPrinter{}, o.ManagedFields}, nil
	case "kyaml":
		return cleaning{kyamlPrinter{}, o.ManagedFields}, nil
	case "name":
		return namePrinter{}, nil
	case "jsonpath":
		t, err := jsonpath.Parse(arg)
		return cleaning{jsonpathPrinter{t, !o.StrictMissing}, o.ManagedFields}, err
	case "go-template", "template":
		return newTemplate(arg, o)
	case "custom-columns":
		return newColumns(arg, o.NoHeaders)
	}
	return nil, fmt.Errorf("-o %q is unknown: use one of %s", o.Format, Formats)
}

// cleaning is a Printer that removes managed fields unless managed is set.
type cleaning struct {
	Printer
	managed bool
}

func (c cleaning) Print(w io.Writer, obj *unstructured.Unstructured) error {
	if c.managed {
		return c.Printer.Print(w, obj)
	}
	obj = obj.DeepCopy()
	obj.SetManagedFields(nil)
	if items, ok := obj.Object["items"].([]any); ok {
		for _, item := range items {
			if m, ok := item.(map[string]any); ok {
				unstructured.RemoveNestedField(m, "metadata", "managedFields")
			}
		}
	}
	return c.Printer.Print(w, obj)
}

type jsonPrinter struct{}

func (jsonPrinter) Print(w io.Writer, obj *unstructured.Unstructured) error {
	data, err := json.MarshalIndent(obj.Object, "", "    ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", data)
	return err
}

type yamlPrinter struct{ printed int }

func (p *yamlPrinter) Print(w io.Writer, obj *unstructured.Unstructured) error {
	data, err := yaml.Marshal(obj.Object)
	if err != nil {
		return err
	}
	if p.printed++; p.printed > 1 {
		if _, err := io.WriteString(w, "---\n"); err != nil {
			return err
		}
	}
	_, err = w.Write(data)
	return err
}

// kyamlPrinter prints KYAML, the subset of YAML in which white space has no meaning
// (KEP-5295). Each document starts with a separator.
type kyamlPrinter struct{}

func (kyamlPrinter) Print(w io.Writer, obj *unstructured.Unstructured) error {
	return (&kyaml.Encoder{}).FromObject(obj.Object, w)
}

type namePrinter struct{}

func (namePrinter) Print(w io.Writer, obj *unstructured.Unstructured) error {
	if obj.IsList() {
		return obj.EachListItem(func(item runtime.Object) error {
			return namePrinter{}.Print(w, item.(*unstructured.Unstructured))
		})
	}
	_, err := fmt.Fprintln(w, Name(obj))
	return err
}

// Name returns an object as messages show it: "deployment.apps/web".
func Name(obj *unstructured.Unstructured) string {
	gvk := obj.GroupVersionKind()
	kind := strings.ToLower(gvk.Kind)
	if gvk.Group != "" {
		kind += "." + gvk.Group
	}
	return kind + "/" + obj.GetName()
}

type jsonpathPrinter struct {
	t       *jsonpath.Template
	lenient bool
}

func (p jsonpathPrinter) Print(w io.Writer, obj *unstructured.Unstructured) error {
	return p.t.Execute(w, obj.Object, p.lenient)
}

type templatePrinter struct{ t *template.Template }

func newTemplate(text string, o Options) (Printer, error) {
	t, err := template.New("output").Funcs(template.FuncMap{
		"base64decode": func(s string) (string, error) {
			data, err := base64.StdEncoding.DecodeString(s)
			return string(data), err
		},
		"exists": func(v any, path ...any) bool {
			for _, step := range path {
				m, ok := v.(map[string]any)
				if !ok {
					return false
				}
				if v, ok = m[fmt.Sprint(step)]; !ok {
					return false
				}
			}
			return true
		},
	}).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("-o go-template: %w", err)
	}
	if o.StrictMissing {
		t.Option("missingkey=error")
	}
	return cleaning{templatePrinter{t}, o.ManagedFields}, nil
}

func (p templatePrinter) Print(w io.Writer, obj *unstructured.Unstructured) error {
	return p.t.Execute(w, obj.Object)
}
