package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"podium/pkg/cli/rest"
	"podium/pkg/client"
)

// explainOptions are the flags of explain.
type explainOptions struct {
	*Factory
	Path       string
	APIVersion string
	Recursive  bool
	MaxDepth   int    // of Recursive; 0: no limit
	Format     string // of -o
}

func newExplain(f *Factory, run func(context.Context, *explainOptions) error) *cobra.Command {
	o := &explainOptions{Factory: f}
	cmd := &cobra.Command{
		Use:               "explain TYPE[.FIELD...]",
		Short:             "Get documentation for a resource",
		Example:           "  podium explain pod.spec.containers",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.completeResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch o.Path = args[0]; {
			case o.Format != "" && o.Format != "plaintext":
				return fmt.Errorf("-o %q: fields are explained as plaintext", o.Format)
			case o.MaxDepth < 0 || cmd.Flags().Changed("max-depth") && !o.Recursive:
				return errors.New("--max-depth is a number of levels of --recursive")
			}
			return run(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.APIVersion, "api-version", "", "use the given API version (group/version) of the resource")
	cmd.Flags().BoolVarP(&o.Recursive, "recursive", "R", false, "print the name of all the fields recursively")
	cmd.Flags().IntVar(&o.MaxDepth, "max-depth", 0, "with --recursive: print this many levels of fields; 0: all")
	cmd.Flags().StringVarP(&o.Format, "output", "o", "", "format of the explanation: plaintext")
	return cmd
}

// fieldSchema is the part of an OpenAPI v3 schema that explain shows.
type fieldSchema struct {
	Ref         string                  `json:"$ref"`
	Type        string                  `json:"type"`
	Format      string                  `json:"format"`
	Description string                  `json:"description"`
	Properties  map[string]*fieldSchema `json:"properties"`
	Additional  json.RawMessage         `json:"additionalProperties"` // a schema, or true
	Items       *fieldSchema            `json:"items"`
	Required    []string                `json:"required"`
	AllOf       []*fieldSchema          `json:"allOf"`
	Enum        []any                   `json:"enum"`
	IntOrString bool                    `json:"x-kubernetes-int-or-string"`
	GVKs        []struct {
		Group, Version, Kind string
	} `json:"x-kubernetes-group-version-kind"`
}

func runExplain(ctx context.Context, o *explainOptions) error {
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	k, fields, err := o.kind(ctx, c)
	if err != nil {
		return err
	}
	doc, err := openAPI(ctx, c, k)
	if err != nil {
		return err
	}
	root := doc.byKind(k)
	if root == nil {
		return fmt.Errorf("the server does not describe %s", k.Plural())
	}
	e := &explanation{w: o.Out, doc: doc, recursive: o.Recursive, levels: o.MaxDepth}
	return e.print(k, root, fields)
}

// kind splits TYPE.FIELD.FIELD. The longest prefix that is a type counts: a
// type may contain dots (deployments.apps).
func (o *explainOptions) kind(ctx context.Context, c *rest.Cluster) (*rest.Kind, []string, error) {
	words := strings.Split(strings.TrimSuffix(o.Path, "."), ".")
	k, err := c.Find(ctx, words[0])
	if err != nil {
		return nil, nil, err
	}
	used := 1
	for n := len(words); n > 1; n-- {
		if found, err := c.Find(ctx, strings.Join(words[:n], ".")); err == nil {
			k, used = found, n
			break
		}
	}
	if o.APIVersion == "" || o.APIVersion == k.GroupVersion().String() {
		return k, words[used:], nil
	}
	kinds, err := c.Kinds(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, other := range kinds {
		if other.Kind == k.Kind && other.GroupVersion().String() == o.APIVersion {
			return other, words[used:], nil
		}
	}
	return nil, nil, fmt.Errorf("the server has no %s in version %q", k.Kind, o.APIVersion)
}

// document is the OpenAPI v3 document of one group and version.
type document struct {
	Components struct {
		Schemas map[string]*fieldSchema `json:"schemas"`
	} `json:"components"`
}

// openAPI reads the document of a kind's group and version.
func openAPI(ctx context.Context, c *rest.Cluster, k *rest.Kind) (*document, error) {
	path := "/openapi/v3/apis/" + k.Group + "/" + k.Version
	if k.Group == "" {
		path = "/openapi/v3/api/" + k.Version
	}
	body, _, err := c.Do(ctx, client.Request{Path: path})
	if err != nil {
		return nil, err
	}
	doc := &document{}
	if err := json.Unmarshal(body, doc); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return doc, nil
}

func (d *document) byKind(k *rest.Kind) *fieldSchema {
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		s := d.Components.Schemas[name]
		for _, gvk := range s.GVKs {
			if gvk.Group == k.Group && gvk.Version == k.Version && gvk.Kind == k.Kind && !strings.HasSuffix(name, "List") {
				return s
			}
		}
	}
	return nil
}

// ref resolves references. It prefers the outer description, which is the
// field's, to the inner one, which is the type's.
func (d *document) ref(s *fieldSchema) (to *fieldSchema, typeName string) {
	for range 10 { // a longer chain is a cycle
		name := s.Ref
		for _, part := range s.AllOf {
			if part.Ref != "" {
				name = part.Ref
			}
		}
		if name == "" {
			return s, typeName
		}
		name = name[strings.LastIndexByte(name, '/')+1:]
		typeName = name[strings.LastIndexByte(name, '.')+1:]
		next := d.Components.Schemas[name]
		if next == nil {
			return s, typeName
		}
		s = next
	}
	return s, typeName
}

// inner returns the schema of the elements of lists and maps, of any depth.
func (d *document) inner(s *fieldSchema) *fieldSchema {
	for {
		to, _ := d.ref(s)
		switch {
		case to.Items != nil:
			s = to.Items
		case to.additional() != nil && len(to.Properties) == 0:
			s = to.additional()
		default:
			return to
		}
	}
}

func (s *fieldSchema) additional() *fieldSchema {
	if len(s.Additional) == 0 || s.Additional[0] != '{' {
		return nil
	}
	out := &fieldSchema{}
	if json.Unmarshal(s.Additional, out) != nil {
		return nil
	}
	return out
}

// typeOf returns a field's type in kubectl's notation: []Container,
// map[string]string.
func (d *document) typeOf(s *fieldSchema) string {
	to, name := d.ref(s)
	switch {
	case to.IntOrString || to.Format == "int-or-string":
		return "IntOrString"
	case to.Items != nil:
		return "[]" + d.typeOf(to.Items)
	case name != "" && to.Type != "string" && to.Type != "integer" && to.Type != "number":
		return name
	case to.additional() != nil:
		return "map[string]" + d.typeOf(to.additional())
	case to.Type == "":
		return "Object"
	case to.Type == "object":
		return "Object"
	}
	return to.Type
}

// explanation prints schemas of one document.
type explanation struct {
	w         io.Writer
	doc       *document
	recursive bool
	levels    int // of recursive; 0: all
}

// print prints the description of a kind, or of the field at path.
func (e *explanation) print(k *rest.Kind, root *fieldSchema, path []string) error {
	at, field := root, (*fieldSchema)(nil)
	for i, name := range path {
		props := e.doc.inner(at).Properties
		if field = props[name]; field == nil {
			return fmt.Errorf("field %q does not exist", strings.Join(path[:i+1], "."))
		}
		at = field
	}
	if k.Group != "" {
		fmt.Fprintf(e.w, "GROUP:      %s\n", k.Group)
	}
	fmt.Fprintf(e.w, "KIND:       %s\nVERSION:    %s\n\n", k.Kind, k.Version)
	if field != nil {
		fmt.Fprintf(e.w, "FIELD: %s <%s>\n\n", path[len(path)-1], e.doc.typeOf(field))
	}
	fmt.Fprint(e.w, "DESCRIPTION:\n")
	inner := e.doc.inner(at)
	written := ""
	for _, text := range []string{at.Description, inner.Description} {
		if text != "" && text != written {
			e.paragraph("    ", text)
			written = text
		}
	}
	if written == "" {
		fmt.Fprintln(e.w, "    <empty>")
	}
	e.enum(inner)
	if len(inner.Properties) > 0 {
		fmt.Fprint(e.w, "FIELDS:\n")
		e.fields(inner, 1, nil)
	}
	fmt.Fprintln(e.w)
	return nil
}

func (e *explanation) enum(s *fieldSchema) {
	if len(s.Enum) == 0 {
		return
	}
	words := make([]string, len(s.Enum))
	for i, v := range s.Enum {
		words[i] = fmt.Sprint(v)
	}
	fmt.Fprintf(e.w, "ENUM:\n    %s\n", strings.Join(words, "\n    "))
}

// fields prints a schema's fields. seen are the enclosing schemas: types may be
// recursive.
func (e *explanation) fields(s *fieldSchema, depth int, seen []*fieldSchema) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		required := ""
		if slices.Contains(s.Required, name) {
			required = " -required-"
		}
		fmt.Fprintf(e.w, "%s%s\t<%s>%s\n", strings.Repeat("  ", depth), name, e.doc.typeOf(p), required)
		inner := e.doc.inner(p)
		if !e.recursive {
			text := p.Description
			if text == "" {
				text = inner.Description
			}
			e.paragraph(strings.Repeat("  ", depth)+"  ", text)
			continue
		}
		if depth != e.levels && inner != s && !slices.Contains(seen, inner) {
			e.fields(inner, depth+1, append(seen, s))
		}
	}
}

const lineWidth = 80

// paragraph prints text wrapped to the line width, followed by an empty line.
func (e *explanation) paragraph(indent, text string) {
	if text == "" {
		text = "<no description>"
	}
	for _, par := range strings.Split(text, "\n") {
		line := ""
		for _, word := range strings.Fields(par) {
			if line != "" && len(indent)+len(line)+1+len(word) > lineWidth {
				fmt.Fprintln(e.w, indent+line)
				line = ""
			}
			if line != "" {
				line += " "
			}
			line += word
		}
		if line != "" {
			fmt.Fprintln(e.w, indent+line)
		}
	}
	fmt.Fprintln(e.w)
}
