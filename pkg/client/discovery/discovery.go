// Package discovery lists the resources that the API server serves now.
package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/client"
	"podium/pkg/scheme"
)

// Resource is a resource that the server serves. Its Kind cannot create objects: New
// and NewList are nil.
type Resource struct {
	*scheme.Kind
	Verbs        []string
	Subresources []string
}

// Supports reports whether the resource has all the verbs.
func (r Resource) Supports(verbs ...string) bool {
	return !slices.ContainsFunc(verbs, func(v string) bool { return !slices.Contains(r.Verbs, v) })
}

// Catalog is what the server serves: each resource once, in the preferred
// version of its group.
type Catalog struct {
	Resources []Resource
	// Failed are the group versions whose resources the server could not list.
	Failed []schema.GroupVersion
}

// Err returns a *FailedError for the failed group versions, nil if there is none.
func (c Catalog) Err() error {
	if len(c.Failed) == 0 {
		return nil
	}
	return &FailedError{c.Failed}
}

// FailedError says that a Catalog lacks the resources of some groups.
type FailedError struct{ Groups []schema.GroupVersion }

func (e *FailedError) Error() string {
	var texts []string
	for _, gv := range e.Groups {
		texts = append(texts, fmt.Sprintf("%s: stale GroupVersion discovery: %[1]s", gv))
	}
	slices.Sort(texts)
	return "unable to retrieve the complete list of server APIs: " + strings.Join(texts, ", ")
}

// Client reads the aggregated discovery documents. It keeps them, and asks the
// server whether they have changed. It is safe for concurrent use.
type Client struct {
	client *client.Client
	mu     sync.Mutex
	roots  [2]document // /api, /apis
}

type document struct {
	etag string
	list apidiscoveryv2.APIGroupDiscoveryList
}

// New returns a client that has not read anything yet.
func New(c *client.Client) *Client { return &Client{client: c} }

// Catalog returns what the server serves now.
func (c *Client) Catalog(ctx context.Context) (Catalog, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out Catalog
	for i, root := range []string{"/api", "/apis"} {
		if err := c.refresh(ctx, root, &c.roots[i]); err != nil {
			return Catalog{}, fmt.Errorf("discover %s: %w", root, err)
		}
		for j := range c.roots[i].list.Items {
			out.add(&c.roots[i].list.Items[j])
		}
	}
	return out, nil
}

func (c *Client) refresh(ctx context.Context, root string, d *document) error {
	header := http.Header{"Accept": {"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}}
	if d.etag != "" {
		header.Set("If-None-Match", d.etag)
	}
	body, got, err := c.client.Do(ctx, client.Request{Path: root, Header: header})
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Code == http.StatusNotModified {
		return nil
	}
	if err != nil {
		return err
	}
	next := document{etag: got.Get("ETag")}
	if err := json.Unmarshal(body, &next.list); err != nil {
		return err
	}
	*d = next
	return nil
}

// add adds the resources of a group, whose versions come in order of preference.
func (c *Catalog) add(group *apidiscoveryv2.APIGroupDiscovery) {
	seen := map[string]bool{}
	for _, v := range group.Versions {
		gv := schema.GroupVersion{Group: group.Name, Version: v.Version}
		if v.Freshness == apidiscoveryv2.DiscoveryFreshnessStale {
			c.Failed = append(c.Failed, gv)
			continue
		}
		for _, r := range v.Resources {
			if r.ResponseKind == nil || seen[r.Resource] {
				continue
			}
			seen[r.Resource] = true
			kind := schema.GroupVersionKind{Group: group.Name, Version: v.Version, Kind: r.ResponseKind.Kind}
			var subresources []string
			for _, s := range r.Subresources {
				subresources = append(subresources, s.Subresource)
			}
			c.Resources = append(c.Resources, Resource{
				Kind: &scheme.Kind{
					GroupVersionKind: kind, Resource: r.Resource, Singular: r.SingularResource,
					Namespaced: r.Scope == apidiscoveryv2.ScopeNamespace,
				},
				Verbs: r.Verbs, Subresources: subresources,
			})
		}
	}
}
