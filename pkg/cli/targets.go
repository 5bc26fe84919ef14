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

	"podium/pkg/cli/kustomize"
	"podium/pkg/cli/manifest"
	"podium/pkg/cli/rest"
)

// target is an object that a command works on. Object is nil unless the object
// was read or comes from a file.
type target struct {
	Kind            *rest.Kind
	Namespace, Name string
	Object          *rest.Object
	Source          string // the file, if it came from one
}

// String returns the target as messages show it: "deployment.apps/web".
func (t target) String() string { return t.Kind.String() + "/" + t.Name }

// selection holds the arguments and flags that select objects: TYPE, TYPE
// NAME..., TYPE/NAME..., files, or a kustomization.
type selection struct {
	Args          []string
	Files         []string
	Recursive     bool
	Kustomize     string // -k: directory of a kustomization
	Labels        string
	Fields        string
	Local         bool // --local: only files, without the server
	All           bool // --all: all objects of the type
	AllNamespaces bool
}

func (s *selection) fileFlags(cmd *cobra.Command, what string) {
	cmd.Flags().StringSliceVarP(&s.Files, "filename", "f", nil, "file, directory or URL with "+what+"; -: standard input")
	cmd.Flags().BoolVarP(&s.Recursive, "recursive", "R", false, "process the directories of -f recursively")
	cmd.Flags().StringVarP(&s.Kustomize, "kustomize", "k", "", "directory of a kustomization with "+what)
}

// given reports whether the objects come from files.
func (s *selection) given() bool { return len(s.Files) > 0 || s.Kustomize != "" }

// read returns the objects in the files.
func (s *selection) read(ctx context.Context, f *Factory) ([]manifest.Document, error) {
	switch {
	case s.Kustomize == "":
		return manifest.Sources{Files: s.Files, Recursive: s.Recursive, Stdin: f.In}.Read(ctx)
	case len(s.Files) > 0:
		return nil, errors.New("only one of -f or -k can be specified")
	case s.Recursive:
		return nil, errors.New("the -k flag can't be used with -f or -R")
	}
	data, err := kustomize.Build(s.Kustomize, kustomize.Options{})
	if err != nil {
		return nil, err
	}
	docs, err := manifest.Parse(data, s.Kustomize)
	if err == nil && len(docs) == 0 {
		err = fmt.Errorf("no objects in %s", s.Kustomize)
	}
	return docs, err
}

func (s *selection) labelFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&s.Labels, "selector", "l", "", "selector (label query) to filter on (a=b,c!=d,e in (f,g))")
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

// named is a type with names; without names it means all objects of the type.
type named struct {
	Kind  *rest.Kind
	Names []string
}

// parse parses the arguments: "pods", "pods,svc", "pod a b", "pod/a svc/b".
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

// parsePairs parses arguments of the form TYPE/NAME.
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

// resolve returns the selected objects. With read, it reads every object;
// otherwise only those that it must list (selectors, whole types). With an
// error about some of them it also returns the others.
func (s *selection) resolve(ctx context.Context, f *Factory, read bool) ([]target, error) {
	if s.Local {
		return s.local(ctx, f)
	}
	c, err := f.Cluster()
	if err != nil {
		return nil, err
	}
	namespace, explicit, err := f.Namespace()
	if err != nil {
		return nil, err
	}
	if s.given() {
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
	for _, g := range groups {
		if err := s.checkGroup(g); err != nil {
			return nil, err
		}
	}
	var out []target
	var errs []error
	for _, g := range groups {
		found, err := s.resolveGroup(ctx, c, g, namespace, read)
		out, errs = append(out, found...), append(errs, err)
	}
	return out, errors.Join(errs...)
}

// checkGroup reports names and flags that do not go together.
func (s *selection) checkGroup(g named) error {
	selected := s.Labels != "" || s.Fields != ""
	switch {
	case len(g.Names) == 0 && !selected && !s.All:
		return errors.New("resource(s) were provided, but no name was specified (or use -l, or --all)")
	case len(g.Names) == 0:
		return nil
	case selected:
		return errors.New("name cannot be provided when a selector is specified")
	case s.All:
		return errors.New("name cannot be provided together with --all")
	case s.AllNamespaces && g.Kind.Namespaced:
		return errors.New("a resource cannot be retrieved by name across all namespaces")
	}
	return nil
}

// resolveGroup resolves one type: its names, or the objects that the selectors
// select. With an error about some names it also returns the other objects.
func (s *selection) resolveGroup(ctx context.Context, c *rest.Cluster, g named, namespace string, read bool) ([]target, error) {
	where := scope(g.Kind, namespace)
	if len(g.Names) == 0 {
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
	var out []target
	var errs []error
	for _, name := range g.Names {
		t := target{Kind: g.Kind, Namespace: where, Name: name}
		if read {
			o, err := c.Get(ctx, g.Kind, where, name)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			t.Object = o
		}
		out = append(out, t)
	}
	return out, errors.Join(errs...)
}

// scope returns the namespace for requests about a kind: "" for a
// cluster-scoped one.
func scope(k *rest.Kind, namespace string) string {
	if !k.Namespaced {
		return ""
	}
	return namespace
}

// fromFiles returns the objects in files, with the namespace that each will be
// in. With an error about some of them, such as a kind that the server does not
// serve yet, it also returns the others.
func (s *selection) fromFiles(ctx context.Context, f *Factory, c *rest.Cluster, namespace string, explicit bool) ([]target, error) {
	docs, err := s.read(ctx, f)
	if err != nil {
		return nil, err
	}
	if _, err := c.Kinds(ctx); err != nil {
		return nil, err // once, not for every object
	}
	var out []target
	var errs []error
	for _, d := range docs {
		t, err := place(ctx, c, d, namespace, explicit)
		switch {
		case err != nil:
			errs = append(errs, inSource(d.Source, err))
		case s.Labels == "" || matchesLabels(s.Labels, t.Object.GetLabels()):
			out = append(out, t)
		}
	}
	return out, errors.Join(errs...)
}

// place returns a document's target. It sets the object's namespace if it has
// none. With explicit, another namespace than the given one is an error.
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

// notFound reports whether err means that an object, or its kind, does not
// exist.
func notFound(err error) bool { return apierrors.IsNotFound(err) }

func matchesLabels(selector string, have map[string]string) bool {
	s, err := labels.Parse(selector)
	return err == nil && s.Matches(labels.Set(have))
}
