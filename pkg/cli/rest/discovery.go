package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/client"
)

// acceptDiscovery requests aggregated discovery. A server without it returns
// the groups, each of which needs another request.
const acceptDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"

// Kinds returns the kinds that the server serves, in its order. Only the first
// successful call sends requests; the result must not be changed.
func (c *Cluster) Kinds(ctx context.Context) ([]*Kind, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds != nil {
		return c.kinds, nil
	}
	var all []*Kind
	for _, root := range []string{"/api", "/apis"} {
		kinds, err := c.discover(ctx, root)
		if err != nil {
			return nil, err
		}
		all = append(all, kinds...)
	}
	c.kinds = all
	return all, nil
}

func (c *Cluster) discover(ctx context.Context, root string) ([]*Kind, error) {
	body, header, err := c.Do(ctx, client.Request{Path: root, Header: http.Header{"Accept": {acceptDiscovery}}})
	if err != nil {
		return nil, err
	}
	if strings.Contains(header.Get("Content-Type"), "as=APIGroupDiscoveryList") {
		var list apidiscovery.APIGroupDiscoveryList
		if err := json.Unmarshal(body, &list); err != nil {
			return nil, fmt.Errorf("read the server's list of resources: %w", err)
		}
		return aggregated(&list), nil
	}
	return c.discoverPlain(ctx, root, body)
}

// aggregated converts aggregated discovery to kinds.
func aggregated(list *apidiscovery.APIGroupDiscoveryList) []*Kind {
	var out []*Kind
	for _, group := range list.Items {
		for i, version := range group.Versions {
			for _, r := range version.Resources {
				if r.ResponseKind == nil {
					continue
				}
				k := &Kind{
					GroupVersionKind: schema.GroupVersionKind{Group: group.Name, Version: version.Version, Kind: r.ResponseKind.Kind},
					Resource:         r.Resource, Singular: r.SingularResource,
					ShortNames: r.ShortNames, Categories: r.Categories, Verbs: r.Verbs,
					Namespaced: r.Scope == apidiscovery.ScopeNamespace, Preferred: i == 0,
				}
				for _, s := range r.Subresources {
					k.Parts = append(k.Parts, s.Subresource)
				}
				out = append(out, k)
			}
		}
	}
	return out
}

// discoverPlain discovers the kinds with a request for each version. body lists
// the versions or groups.
func (c *Cluster) discoverPlain(ctx context.Context, root string, body []byte) ([]*Kind, error) {
	type source struct {
		path      string
		preferred bool
	}
	var sources []source
	if root == "/api" {
		var versions metav1.APIVersions
		if err := json.Unmarshal(body, &versions); err != nil {
			return nil, fmt.Errorf("read the server's list of versions: %w", err)
		}
		for i, v := range versions.Versions {
			sources = append(sources, source{"/api/" + v, i == 0})
		}
	} else {
		var groups metav1.APIGroupList
		if err := json.Unmarshal(body, &groups); err != nil {
			return nil, fmt.Errorf("read the server's list of groups: %w", err)
		}
		for _, g := range groups.Groups {
			for _, v := range g.Versions {
				sources = append(sources, source{"/apis/" + v.GroupVersion, v.GroupVersion == g.PreferredVersion.GroupVersion})
			}
		}
	}
	var out []*Kind
	for _, s := range sources {
		text, _, err := c.Do(ctx, client.Request{Path: s.path})
		if err != nil {
			return nil, err
		}
		var list metav1.APIResourceList
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, fmt.Errorf("read the server's resources of %s: %w", s.path, err)
		}
		out = append(out, plain(&list, s.preferred)...)
	}
	return out, nil
}

// plain converts the resources of one version to kinds.
func plain(list *metav1.APIResourceList, preferred bool) []*Kind {
	gv, err := schema.ParseGroupVersion(list.GroupVersion)
	if err != nil {
		return nil
	}
	var out []*Kind
	byResource := map[string]*Kind{}
	for _, r := range list.APIResources {
		resource, part, isPart := strings.Cut(r.Name, "/")
		if isPart {
			if k := byResource[resource]; k != nil {
				k.Parts = append(k.Parts, part)
			}
			continue
		}
		k := &Kind{
			GroupVersionKind: gv.WithKind(r.Kind), Resource: r.Name, Singular: r.SingularName,
			ShortNames: r.ShortNames, Categories: r.Categories, Verbs: r.Verbs, Namespaced: r.Namespaced, Preferred: preferred,
		}
		byResource[r.Name] = k
		out = append(out, k)
	}
	return out
}

// ErrNoKind means that the server serves no kind that Word matches.
type ErrNoKind struct{ Word string }

func (e *ErrNoKind) Error() string {
	return fmt.Sprintf("the server doesn't have a resource type %q (see: podium api-resources)", e.Word)
}

// Find returns the kind that a word names, in the preferred version unless the
// word has one. It returns an *ErrNoKind if there is none.
func (c *Cluster) Find(ctx context.Context, word string) (*Kind, error) {
	kinds, err := c.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	var found *Kind
	for _, k := range kinds {
		if !k.matches(word) {
			continue
		}
		exact := strings.Count(word, ".") > 1 // the word has a version
		if k.Preferred || exact {
			return k, nil
		}
		if found == nil {
			found = k
		}
	}
	if found == nil {
		return nil, &ErrNoKind{word}
	}
	return found, nil
}

// FindAll returns the kinds that a comma-separated list of words names. A word
// may also be a category such as "all".
func (c *Cluster) FindAll(ctx context.Context, words string) ([]*Kind, error) {
	kinds, err := c.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	var out []*Kind
	for _, word := range strings.Split(words, ",") {
		if word == "" {
			return nil, fmt.Errorf("an empty resource type in %q", words)
		}
		k, err := c.Find(ctx, word)
		if err == nil {
			out = append(out, k)
			continue
		}
		before := len(out)
		for _, k := range kinds {
			if k.Preferred && slices.Contains(k.Categories, word) && k.Can("list") {
				out = append(out, k)
			}
		}
		if len(out) == before {
			return nil, err
		}
	}
	return out, nil
}

// ByGVK returns the kind with exactly this group, version and kind.
func (c *Cluster) ByGVK(ctx context.Context, gvk schema.GroupVersionKind) (*Kind, error) {
	if gvk.Kind == "" || gvk.Version == "" {
		return nil, errors.New("the object has no apiVersion and kind")
	}
	kinds, err := c.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range kinds {
		if k.GroupVersionKind == gvk {
			return k, nil
		}
	}
	return nil, fmt.Errorf("no matches for kind %q in version %q: the server does not serve it (if it is a custom resource, apply its definition first)",
		gvk.Kind, gvk.GroupVersion().String())
}
