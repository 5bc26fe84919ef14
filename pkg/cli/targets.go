package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"podium/pkg/cli/manifest"
	"podium/pkg/cli/rest"
)

// target is one object a command works on. Object is there when it was read or
// came from a file.
type target struct {
	Kind            *rest.Kind
	Namespace, Name string
	Object          *rest.Object
	Source          string // the file, if it came from one
}

// String is how messages name it: "deployment.apps/web".
func (t target) String() string { return t.Kind.String() + "/" + t.Name }

// selection is how a command line says which objects are meant: TYPE, TYPE
// NAME..., TYPE/NAME..., or files.
type selection struct {
	Args          []string
	Files         []string
	Recursive     bool
	Labels        string
	Fields        string
	All           bool // all objects of the type, said explicitly
	AllNamespaces bool
}

func (s *selection) fileFlags(cmd *cobra.Command, what string) {
	cmd.Flags().StringSliceVarP(&s.Files, "filename", "f", nil, "file, folder or URL with "+what+"; - is standard input")
	cmd.Flags().BoolVarP(&s.Recursive, "recursive", "R", false, "read the folders in the folders of -f too")
}

func (s *selection) labelFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&s.Labels, "selector", "l", "", "only objects with these labels (a=b,c!=d,e in (f,g))")
}

func (s *selection) query() url.Values {
	q := url.Values{}
	if s.Labels != "" {
		q.Set("labelSelector", s.Labels)
	}
	if s.Fields != "" {
		q.Set("fieldSelector", s.Fields)
	}
	return q
}

// named is one type with the names asked of it; no names: all of the type.
type named struct {
	Kind  *rest.Kind
	Names []string
}

// parse reads the arguments: "pods", "pods,svc", "pod a b", "pod/a svc/b".
func (s *selection) parse(ctx context.Context, c *rest.Cluster) ([]named, error) {
	if len(s.Args) == 0 {
		return nil, errors.New("you must specify the type of resource, e.g. pods (see: podium api-resources)")
	}
	if strings.Contains(s.Args[0], "/") {
		return s.parsePairs(ctx, c)
	}
	kinds, err := c.FindAll(ctx, s.Args[0])
	if err != nil {
		return nil, err
	}
	var out []named
	for _, name := range s.Args[1:] {
		if strings.Contains(name, "/") {
			return nil, fmt.Errorf("there is no need to specify a resource type as a separate argument when passing arguments in resource/name form (%s)", name)
		}
	}
	for _, k := range kinds {
		out = append(out, named{k, s.Args[1:]})
	}
	return out, nil
}

func (s *selection) parsePairs(ctx context.Context, c *rest.Cluster) ([]named, error) {
	var out []named
	for _, arg := range s.Args {
		word, name, ok := strings.Cut(arg, "/")
		if !ok || word == "" || name == "" || strings.Contains(name, "/") {
			return nil, fmt.Errorf("arguments in resource/name form must have a single resource and name: %q", arg)
		}
		k, err := c.Find(ctx, word)
		if err != nil {
			return nil, err
		}
		out = append(out, named{k, []string{name}})
	}
	return out, nil
}

// resolve lists the objects that are meant. With read, each object is read;
// else only what must be listed (selectors, whole types) is.
func (s *selection) resolve(ctx context.Context, f *Factory, read bool) ([]target, error) {
	c, err := f.Cluster()
	if err != nil {
		return nil, err
	}
	namespace, explicit, err := f.Namespace()
	if err != nil {
		return nil, err
	}
	if len(s.Files) > 0 {
		if len(s.Args) > 0 {
			return nil, errors.New("give files or resources, not both")
		}
		return s.fromFiles(ctx, f, c, namespace, explicit)
	}
	groups, err := s.parse(ctx, c)
	if err != nil {
		return nil, err
	}
	if s.AllNamespaces {
		namespace = ""
	}
	var out []target
	for _, g := range groups {
		found, err := s.resolveGroup(ctx, c, g, namespace, read)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

func (s *selection) resolveGroup(ctx context.Context, c *rest.Cluster, g named, namespace string, read bool) ([]target, error) {
	where := scope(g.Kind, namespace)
	if len(g.Names) == 0 {
		if s.Labels == "" && s.Fields == "" && !s.All {
			return nil, fmt.Errorf("resource(s) were provided, but no name was specified (or use -l, or --all)")
		}
		list, err := c.List(ctx, g.Kind, where, s.query())
		if err != nil {
			return nil, err
		}
		var out []target
		for i := range list.Items {
			o := &list.Items[i]
			out = append(out, target{Kind: g.Kind, Namespace: o.GetNamespace(), Name: o.GetName(), Object: o})
		}
		return out, nil
	}
	switch {
	case s.Labels != "" || s.Fields != "":
		return nil, errors.New("name cannot be provided when a selector is specified")
	case s.All:
		return nil, errors.New("name cannot be provided together with --all")
	case s.AllNamespaces && g.Kind.Namespaced:
		return nil, errors.New("a resource cannot be retrieved by name across all namespaces")
	}
	var out []target
	for _, name := range g.Names {
		t := target{Kind: g.Kind, Namespace: where, Name: name}
		if read {
			o, err := c.Get(ctx, g.Kind, where, name)
			if err != nil {
				return nil, err
			}
			t.Object = o
		}
		out = append(out, t)
	}
	return out, nil
}

func scope(k *rest.Kind, namespace string) string {
	if !k.Namespaced {
		return ""
	}
	return namespace
}

// fromFiles takes the objects of files as they stand there, each with the
// namespace it will live in.
func (s *selection) fromFiles(ctx context.Context, f *Factory, c *rest.Cluster, namespace string, explicit bool) ([]target, error) {
	docs, err := manifest.Sources{Files: s.Files, Recursive: s.Recursive, Stdin: f.In}.Read(ctx)
	if err != nil {
		return nil, err
	}
	var out []target
	for _, d := range docs {
		t, err := place(ctx, c, d, namespace, explicit)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.Source, err)
		}
		if s.Labels == "" || matchesLabels(s.Labels, t.Object.GetLabels()) {
			out = append(out, t)
		}
	}
	return out, nil
}

// place finds an object's kind and namespace.
func place(ctx context.Context, c *rest.Cluster, d manifest.Document, namespace string, explicit bool) (target, error) {
	k, err := c.ByGVK(ctx, d.Object.GroupVersionKind())
	if err != nil {
		return target{}, err
	}
	t := target{Kind: k, Name: d.Object.GetName(), Object: d.Object, Source: d.Source}
	if !k.Namespaced {
		return t, nil
	}
	own := d.Object.GetNamespace()
	if own == "" {
		d.Object.SetNamespace(namespace)
		own = namespace
	}
	if explicit && own != namespace {
		return target{}, fmt.Errorf("the namespace from the provided object %q does not match the namespace %q. You must pass '--namespace=%s' to perform this operation", own, namespace, own)
	}
	t.Namespace = own
	return t, nil
}

// notFound says whether an object, or its kind, is not there.
func notFound(err error) bool { return apierrors.IsNotFound(err) }

func matchesLabels(selector string, have map[string]string) bool {
	s, err := labels.Parse(selector)
	return err == nil && s.Matches(labels.Set(have))
}
