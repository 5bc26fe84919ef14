package discovery

import (
	"cmp"
	"crypto/sha512"
	"fmt"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"

	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
)

// group is one API group with its versions, the preferred one first.
type group struct {
	name     string
	priority int32
	versions []*version
}

// version is one group version with its resources.
type version struct {
	name      string
	priority  int32
	resources []resource
	remote    *Remote // nil: this server serves it
}

// Remote is a group version that another server serves.
type Remote struct {
	Group                          string
	GroupPriority, VersionPriority int32
	apidiscoveryv2.APIVersionDiscovery
}

type resource struct {
	*scheme.Kind
	verbs []string
	subs  []subresource
}

type subresource struct {
	name  string
	gvk   schema.GroupVersionKind
	verbs []string
}

func groupsOf(cfg Config, kinds []*registry.Kind, remote []Remote) []*group {
	var groups []*group
	named := func(name string) *group {
		for _, g := range groups {
			if g.name == name {
				return g
			}
		}
		groups = append(groups, &group{name: name})
		return groups[len(groups)-1]
	}
	var further []resource // in versions other than the storage version
	rank := func(g *group, v *version, first, second int32) {
		g.priority, v.priority = max(g.priority, first), second
	}
	add := func(r resource, custom bool) {
		g := named(r.Group)
		v := g.version(r.Version)
		v.resources = append(v.resources, r)
		first, second := cfg.Priority(r.GroupVersion(), custom)
		rank(g, v, first, second)
	}
	for _, k := range kinds {
		for _, v := range k.Served() {
			r := resource{Kind: v.Kind, verbs: cfg.Verbs(k)}
			for _, s := range v.Rules.Subresources {
				if verbs := cfg.SubresourceVerbs(s); len(verbs) > 0 {
					r.subs = append(r.subs, subresource{s.Name, in(k, v, s.GVK), verbs})
				}
			}
			if v.Kind == k.Kind {
				add(r, k.IsUntyped())
			} else {
				further = append(further, r)
			}
		}
	}
	for _, r := range further {
		add(r, r.IsUntyped())
	}
	for i := range remote {
		g := named(remote[i].Group)
		v := g.version(remote[i].Version)
		v.remote = &remote[i]
		rank(g, v, remote[i].GroupPriority, remote[i].VersionPriority)
	}
	order(groups)
	return groups
}

// order sorts groups and their versions as clients prefer them: by priority, groups of
// equal priority by name, and versions of equal priority by their age and stability.
func order(groups []*group) {
	for _, g := range groups {
		slices.SortStableFunc(g.versions, func(a, b *version) int {
			return cmp.Or(cmp.Compare(b.priority, a.priority), apiversion.CompareKubeAwareVersionStrings(b.name, a.name))
		})
	}
	slices.SortStableFunc(groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.name, b.name))
	})
}

// in returns the kind of the bodies of a subresource in a version of k: those of
// the kind itself have the same version.
func in(k *registry.Kind, v *registry.Version, gvk schema.GroupVersionKind) schema.GroupVersionKind {
	if gvk == k.GroupVersionKind {
		return v.GroupVersionKind
	}
	return gvk
}

func (g *group) version(name string) *version {
	for _, v := range g.versions {
		if v.name == name {
			return v
		}
	}
	v := &version{name: name}
	g.versions = append(g.versions, v)
	return v
}

func (g *group) names() []string {
	var names []string
	for _, v := range g.versions {
		names = append(names, v.name)
	}
	return names
}

func (g *group) plain() *metav1.APIGroup {
	out := &metav1.APIGroup{Name: g.name}
	for _, v := range g.versions {
		gv := schema.GroupVersion{Group: g.name, Version: v.name}
		out.Versions = append(out.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: v.name})
	}
	out.PreferredVersion = out.Versions[0]
	return out
}

func (v *version) path(group string) string {
	if group == "" {
		return "/api/" + v.name
	}
	return "/apis/" + group + "/" + v.name
}

func (v *version) plain(group string) *metav1.APIResourceList {
	gv := schema.GroupVersion{Group: group, Version: v.name}
	out := &metav1.APIResourceList{GroupVersion: gv.String(), APIResources: []metav1.APIResource{}}
	for _, r := range v.resources {
		out.APIResources = append(out.APIResources, metav1.APIResource{
			Name: r.Resource, SingularName: r.Singular, Namespaced: r.Namespaced, Kind: r.GroupVersionKind.Kind,
			Verbs: r.verbs, ShortNames: r.ShortNames, Categories: r.Categories,
		})
		for _, s := range r.subs {
			one := metav1.APIResource{Name: r.Resource + "/" + s.name, Namespaced: r.Namespaced, Kind: s.gvk.Kind, Verbs: s.verbs}
			if s.gvk.GroupVersion() != gv {
				one.Group, one.Version = s.gvk.Group, s.gvk.Version
			}
			out.APIResources = append(out.APIResources, one)
		}
	}
	return out
}

// aggregate adds the aggregated documents.
func (d *documents) aggregate(groups []*group) error {
	core, rest := &apidiscoveryv2.APIGroupDiscoveryList{}, &apidiscoveryv2.APIGroupDiscoveryList{}
	for _, g := range groups {
		into := rest
		if g.name == "" {
			into = core
		}
		into.Items = append(into.Items, g.aggregated())
	}
	for path, list := range map[string]*apidiscoveryv2.APIGroupDiscoveryList{"/api": core, "/apis": rest} {
		doc := fixed(list) // v2beta1 has the same fields
		text, err := doc.JSON()
		if err != nil {
			return fmt.Errorf("discovery of %s: %w", path, err)
		}
		etag := fmt.Sprintf("%q", strings.ToUpper(fmt.Sprintf("%x", sha512.Sum512(text.Bytes()))))
		d.aggregated[path] = map[string]page{}
		for _, v := range []string{"v2", "v2beta1"} {
			gvk := schema.GroupVersionKind{Group: apidiscoveryv2.GroupName, Version: v, Kind: aggregatedKind}
			d.aggregated[path][v] = page{gvk: gvk, obj: doc, etag: etag}
		}
	}
	return nil
}

func (g *group) aggregated() apidiscoveryv2.APIGroupDiscovery {
	out := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}}
	for _, v := range g.versions {
		if v.remote != nil {
			out.Versions = append(out.Versions, v.remote.APIVersionDiscovery)
			continue
		}
		one := apidiscoveryv2.APIVersionDiscovery{Version: v.name, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Resources: []apidiscoveryv2.APIResourceDiscovery{}}
		for _, r := range v.resources {
			one.Resources = append(one.Resources, r.aggregated())
		}
		out.Versions = append(out.Versions, one)
	}
	return out
}

func (r *resource) aggregated() apidiscoveryv2.APIResourceDiscovery {
	scope := apidiscoveryv2.ScopeCluster
	if r.Namespaced {
		scope = apidiscoveryv2.ScopeNamespace
	}
	out := apidiscoveryv2.APIResourceDiscovery{
		Resource: r.Resource, ResponseKind: responseKind(r.GroupVersionKind), Scope: scope, SingularResource: r.Singular,
		Verbs: r.verbs, ShortNames: r.ShortNames, Categories: r.Categories,
	}
	for _, s := range r.subs {
		out.Subresources = append(out.Subresources, apidiscoveryv2.APISubresourceDiscovery{
			Subresource: s.name, ResponseKind: responseKind(s.gvk), Verbs: s.verbs,
		})
	}
	return out
}

func responseKind(gvk schema.GroupVersionKind) *metav1.GroupVersionKind {
	return &metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}
}
