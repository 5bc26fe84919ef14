package cli

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"podium/pkg/cli/rest"
	"podium/pkg/version"
)

// Labels and annotations of ApplySets, of the prefix applyset.kubernetes.io.
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-cli/3659-kubectl-apply-prune
const (
	applySetPrefix     = "applyset.kubernetes.io/"
	applySetID         = applySetPrefix + "id"                    // label of a parent
	applySetMember     = applySetPrefix + "part-of"               // label of a member: the ID
	applySetTooling    = applySetPrefix + "tooling"               // PROGRAM/VERSION
	applySetKinds      = applySetPrefix + "contains-group-kinds"  // KIND[.GROUP],...
	applySetNamespaces = applySetPrefix + "additional-namespaces" // but for the parent's
	applySetParentType = applySetPrefix + "is-parent-type"        // label of a CustomResourceDefinition
)

// applySet is a set of objects that are applied together. Its parent records where its members are,
// and a label of these names it.
type applySet struct {
	parent target // without the object
	id     string
	before extent // as the last apply recorded it
}

// extent is the kinds (KIND[.GROUP]) and the namespaces in which an ApplySet may have members.
type extent struct{ kinds, namespaces sets.Set[string] }

func (e extent) union(other extent) extent {
	return extent{e.kinds.Union(other.kinds), e.namespaces.Union(other.namespaces)}
}

// applySetOf finds the ApplySet of --applyset. Its parent need not exist if podium can create it.
func (o *applyOptions) applySetOf(ctx context.Context, c *rest.Cluster) (*applySet, error) {
	word, name, ok := strings.Cut(o.ApplySet, "/")
	if !ok {
		word, name = "secrets", o.ApplySet
	}
	if word == "" || name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("--applyset=%q: use NAME, for a Secret, or RESOURCE[.GROUP]/NAME", o.ApplySet)
	}
	kind, err := c.Find(ctx, word)
	if err != nil {
		return nil, fmt.Errorf("--applyset: %w", err)
	}
	s := &applySet{parent: target{Kind: kind, Name: name}}
	if kind.Namespaced {
		if s.parent.Namespace, _, err = o.Namespace(); err != nil {
			return nil, err
		}
	}
	hash := sha256.Sum256([]byte(strings.Join([]string{name, s.parent.Namespace, kind.Kind, kind.Group}, ".")))
	s.id = "applyset-" + base64.RawURLEncoding.EncodeToString(hash[:]) + "-v1"
	if err := s.checkKind(ctx, c); err != nil {
		return nil, err
	}
	return s, s.read(ctx, c)
}

func (s *applySet) ordinary() bool {
	k := s.parent.Kind
	return k.Group == "" && (k.Kind == "Secret" || k.Kind == "ConfigMap")
}

// checkKind refuses parents of kinds that are not for this.
func (s *applySet) checkKind(ctx context.Context, c *rest.Cluster) error {
	if s.ordinary() {
		return nil
	}
	refusal := fmt.Errorf("--applyset: %s cannot be the parent of an ApplySet: use a Secret, a ConfigMap, or a custom resource whose CustomResourceDefinition has the label %s=true", s.parent, applySetParentType)
	definitions, err := c.Find(ctx, "customresourcedefinitions.apiextensions.k8s.io")
	if err != nil {
		return err
	}
	crd, err := c.Get(ctx, definitions, "", s.parent.Kind.Plural())
	switch {
	case notFound(err):
		return refusal
	case err != nil:
		return fmt.Errorf("--applyset: look at the kind of %s: %w", s.parent, err)
	case crd.GetLabels()[applySetParentType] != "true":
		return refusal
	}
	return nil
}

// read reads what the parent records. A custom resource becomes a parent by the first apply.
func (s *applySet) read(ctx context.Context, c *rest.Cluster) error {
	obj, err := c.Get(ctx, s.parent.Kind, s.parent.Namespace, s.parent.Name)
	switch {
	case notFound(err) && s.ordinary():
		return nil
	case err != nil:
		return fmt.Errorf("--applyset: read the parent %s: %w", s.parent, err)
	}
	id, notes := obj.GetLabels()[applySetID], obj.GetAnnotations()
	tooling, _, _ := strings.Cut(notes[applySetTooling], "/")
	switch {
	case id == "" && tooling == "" && !s.ordinary():
		return nil
	case id == "":
		return fmt.Errorf("--applyset: %s exists and is not the parent of an ApplySet: it has no label %s; use another name", s.parent, applySetID)
	case id != s.id:
		return fmt.Errorf("--applyset: %s has the label %s=%s, want %s: was it copied? Use another name", s.parent, applySetID, id, s.id)
	case tooling != manager:
		return fmt.Errorf("--applyset: %s is managed by tooling %q instead of %q: apply with that program, or use another name", s.parent, tooling, manager)
	}
	s.before = extent{split(notes[applySetKinds]), split(notes[applySetNamespaces])}
	return nil
}

func split(list string) sets.Set[string] {
	out := sets.New(strings.Split(list, ",")...)
	return out.Delete("")
}

// adopt labels the objects of files as members, and returns where these are.
func (s *applySet) adopt(files []target) (extent, error) {
	out := extent{sets.New[string](), sets.New[string]()}
	for _, t := range files {
		labels := t.Object.GetLabels()
		if _, has := labels[applySetMember]; has {
			return out, inSource(t.Source, fmt.Errorf("%s has the label %s, which --applyset sets: remove it", t, applySetMember))
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[applySetMember] = s.id
		t.Object.SetLabels(labels)
		out.kinds.Insert(t.Kind.GroupKind().String())
		if t.Kind.Namespaced && t.Namespace != s.parent.Namespace {
			out.namespaces.Insert(t.Namespace)
		}
	}
	return out, nil
}

// mayTake returns an error if an object is a member of another ApplySet.
func (s *applySet) mayTake(obj *rest.Object) error {
	if id := obj.GetLabels()[applySetMember]; id != "" && id != s.id {
		return fmt.Errorf("the object is a member of another ApplySet, %s: remove it there first, or take it over with --force-conflicts", id)
	}
	return nil
}

// write records in the parent where members may be.
func (s *applySet) write(ctx context.Context, c *rest.Cluster, o *applyOptions, e extent) error {
	if o.DryRun == "client" {
		return nil
	}
	parent := &rest.Object{}
	parent.SetGroupVersionKind(s.parent.Kind.GroupVersionKind)
	parent.SetName(s.parent.Name)
	parent.SetNamespace(s.parent.Namespace)
	parent.SetLabels(map[string]string{applySetID: s.id})
	parent.SetAnnotations(map[string]string{
		applySetTooling:    manager + "/" + version.Podium,
		applySetKinds:      strings.Join(sets.List(e.kinds), ","),
		applySetNamespaces: strings.Join(sets.List(e.namespaces), ","),
	})
	body, err := json.Marshal(parent.Object)
	if err != nil {
		return err
	}
	if _, err = serverSideApply(ctx, c, s.parent, body, rest.WriteQuery(o.DryRun == "server", manager+"-applyset"), o.Force); err != nil {
		return fmt.Errorf("write the parent %s of the ApplySet: %w", s.parent, conflictHint(err))
	}
	return nil
}

// members returns the members that are not in files. Kinds that the server does not serve
// any more have none.
func (s *applySet) members(ctx context.Context, c *rest.Cluster, e extent, files []target) ([]target, error) {
	kinds, err := c.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	var out []target
	for _, k := range kinds {
		if !k.Preferred || !k.Can("list") || !e.kinds.Has(k.GroupKind().String()) {
			continue
		}
		namespaces := []string{""}
		if k.Namespaced {
			namespaces = sets.List(e.namespaces)
			if s.parent.Kind.Namespaced {
				namespaces = append(namespaces, s.parent.Namespace)
			}
		}
		for _, namespace := range namespaces {
			list, err := c.List(ctx, k, namespace, url.Values{"labelSelector": {applySetMember + "=" + s.id}})
			if err != nil {
				return nil, fmt.Errorf("list %s to prune: %w", k.Plural(), err)
			}
			for i := range list.Items {
				obj := &list.Items[i]
				t := target{Kind: k, Namespace: obj.GetNamespace(), Name: obj.GetName(), Object: obj}
				if !slices.ContainsFunc(files, t.same) {
					out = append(out, t)
				}
			}
		}
	}
	return out, nil
}

// applyTogether applies files as an ApplySet: its parent records where members may be before
// any of them is written, and the members that are not in the files are pruned.
func (o *applyOptions) applyTogether(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	files, unresolved := o.resolve(ctx, o.Factory, false)
	if o.set, err = o.applySetOf(ctx, c); err != nil {
		return err
	}
	after, err := o.set.adopt(files)
	if err != nil {
		return err
	}
	all := o.set.before.union(after)
	if err := o.set.write(ctx, c, o, all); err != nil {
		return err
	}
	if err := o.applyEach(ctx, func(context.Context) ([]target, error) { return files, unresolved }); err != nil {
		return errors.Join(err, errors.New("the ApplySet was not pruned: correct the errors and apply it again"))
	}
	err = o.prune(ctx, func(ctx context.Context, c *rest.Cluster) ([]target, error) { return o.set.members(ctx, c, all, files) })
	if err != nil {
		return err
	}
	return o.set.write(ctx, c, o, after)
}
