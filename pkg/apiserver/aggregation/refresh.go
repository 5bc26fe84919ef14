package aggregation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"reflect"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// document is an OpenAPI document.
type document struct {
	tag  string // identifies the content: a URL with its hash, or an ETag
	text []byte // nil: none
}

// rediscover reads which resources the server serves, unless it is not available, and
// reports whether that has changed. What was read before stays, marked as stale.
func (r *remote) rediscover(ctx context.Context, available bool) (changed bool) {
	err := errors.New("not available")
	var found *apidiscoveryv2.APIVersionDiscovery
	etag := r.etag
	if available {
		found, etag, err = r.discover(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.found
	if found != nil {
		next, r.etag = *found, etag
	}
	if next.Freshness = apidiscoveryv2.DiscoveryFreshnessCurrent; err != nil {
		next.Freshness = apidiscoveryv2.DiscoveryFreshnessStale
		if available {
			r.a.Log.Warn("read the resources of an APIService failed", "apiservice", r.name, "err", err)
		}
	}
	changed = !reflect.DeepEqual(next, r.found)
	r.found = next
	return changed
}

// redescribe reads the OpenAPI documents of a server that is available, and reports
// whether they have changed.
func (r *remote) redescribe(ctx context.Context) (changed bool) {
	doc, doc2 := r.described(ctx, "v3", r.describe, r.doc), r.described(ctx, "v2", r.describeV2, r.doc2)
	r.mu.Lock()
	defer r.mu.Unlock()
	changed = doc.tag != r.doc.tag || !bytes.Equal(doc2.text, r.doc2.text)
	r.doc, r.doc2 = doc, doc2
	return changed
}

// described returns what read returns, or the document that is known if that fails.
func (r *remote) described(ctx context.Context, version string, read func(context.Context) (document, error), known document) document {
	doc, err := read(ctx)
	if err != nil {
		r.a.Log.Debug("read the OpenAPI document of an APIService failed", "apiservice", r.name, "version", version, "err", err)
		return known
	}
	return doc
}

const aggregatedList = "APIGroupDiscoveryList"

// discover reads the resources of the group version: from the aggregated discovery
// document, or else from the group version's own. nil without an error means that they
// have not changed.
func (r *remote) discover(ctx context.Context) (*apidiscoveryv2.APIVersionDiscovery, string, error) {
	root, accept := "/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as="+aggregatedList+",application/json;g=apidiscovery.k8s.io;v=v2beta1;as="+aggregatedList
	if r.gv.Group == "" {
		root = "/api"
	}
	got, err := r.get(ctx, root, accept, r.etag)
	var refused *statusError
	switch {
	case errors.As(err, &refused) && refused.code != http.StatusServiceUnavailable:
		return r.discoverPlain(ctx)
	case err != nil:
		return nil, "", err
	case got.code == http.StatusNotModified:
		return nil, r.etag, nil
	}
	if _, params, err := mime.ParseMediaType(got.header.Get("Content-Type")); err != nil || params["as"] != aggregatedList {
		return r.discoverPlain(ctx)
	}
	found, err := aggregatedVersion(got.body, r.gv)
	return found, got.header.Get("ETag"), err
}

func (r *remote) discoverPlain(ctx context.Context) (*apidiscoveryv2.APIVersionDiscovery, string, error) {
	got, err := r.get(ctx, r.path(), "application/json", "")
	if err != nil {
		return nil, "", err
	}
	found, err := plainVersion(got.body, r.gv)
	return found, "", err
}

// aggregatedVersion returns a group version of an aggregated discovery document,
// without resources if the document lacks it.
func aggregatedVersion(body []byte, gv schema.GroupVersion) (*apidiscoveryv2.APIVersionDiscovery, error) {
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("decode the aggregated discovery document: %w", err)
	}
	for _, g := range list.Items {
		for _, v := range g.Versions {
			if g.Name == gv.Group && v.Version == gv.Version {
				return withKinds(v), nil
			}
		}
	}
	return withKinds(apidiscoveryv2.APIVersionDiscovery{Version: gv.Version}), nil
}

// withKinds makes every responseKind present: old clients do not check.
// https://github.com/kubernetes/kubernetes/issues/118361
func withKinds(v apidiscoveryv2.APIVersionDiscovery) *apidiscoveryv2.APIVersionDiscovery {
	if v.Resources == nil {
		v.Resources = []apidiscoveryv2.APIResourceDiscovery{}
	}
	for i := range v.Resources {
		r := &v.Resources[i]
		if r.ResponseKind == nil {
			r.ResponseKind = &metav1.GroupVersionKind{}
		}
		for j := range r.Subresources {
			if r.Subresources[j].ResponseKind == nil {
				r.Subresources[j].ResponseKind = &metav1.GroupVersionKind{}
			}
		}
	}
	return &v
}

// plainVersion converts a group version's own discovery document.
func plainVersion(body []byte, gv schema.GroupVersion) (*apidiscoveryv2.APIVersionDiscovery, error) {
	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("decode the discovery document of %s: %w", gv, err)
	}
	out := apidiscoveryv2.APIVersionDiscovery{Version: gv.Version}
	places := map[string]int{} // of resources in out
	place := func(name string, namespaced bool) *apidiscoveryv2.APIResourceDiscovery {
		if _, ok := places[name]; !ok {
			places[name] = len(out.Resources)
			scope := apidiscoveryv2.ScopeCluster
			if namespaced {
				scope = apidiscoveryv2.ScopeNamespace
			}
			out.Resources = append(out.Resources, apidiscoveryv2.APIResourceDiscovery{Resource: name, Scope: scope})
		}
		return &out.Resources[places[name]]
	}
	for _, r := range list.APIResources {
		kind := &metav1.GroupVersionKind{Group: or(r.Group, gv.Group), Version: or(r.Version, gv.Version), Kind: r.Kind}
		if parent, name, ok := strings.Cut(r.Name, "/"); ok {
			p := place(parent, r.Namespaced)
			p.Subresources = append(p.Subresources, apidiscoveryv2.APISubresourceDiscovery{Subresource: name, ResponseKind: kind, Verbs: r.Verbs})
			continue
		}
		p := place(r.Name, r.Namespaced)
		p.ResponseKind, p.SingularResource, p.Verbs, p.ShortNames, p.Categories = kind, r.SingularName, r.Verbs, r.ShortNames, r.Categories
	}
	return withKinds(out), nil
}

func or(s, instead string) string {
	if s == "" {
		return instead
	}
	return s
}

// describe reads the group version's OpenAPI v3 document, unless it has the hash of the
// one that is known. A server without one has none here.
func (r *remote) describe(ctx context.Context) (document, error) {
	got, err := r.get(ctx, "/openapi/v3", "application/json", "")
	var refused *statusError
	if errors.As(err, &refused) && refused.code == http.StatusNotFound {
		return document{}, nil
	}
	if err != nil {
		return document{}, err
	}
	var index struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(got.body, &index); err != nil {
		return document{}, fmt.Errorf("decode the index of OpenAPI documents: %w", err)
	}
	path := strings.TrimPrefix(r.path(), "/")
	at, ok := index.Paths[path]
	switch {
	case !ok:
		return document{}, nil
	case r.doc.text != nil && at.URL == r.doc.tag:
		return r.doc, nil
	}
	if got, err = r.get(ctx, "/openapi/v3/"+path, "application/json", ""); err != nil {
		return document{}, err
	}
	if !json.Valid(got.body) {
		return document{}, fmt.Errorf("the OpenAPI document of %s is not JSON", path)
	}
	return document{at.URL, got.body}, nil
}

// describeV2 reads the server's OpenAPI v2 document, unless it is the one that is known.
// A server without one has none here.
func (r *remote) describeV2(ctx context.Context) (document, error) {
	got, err := r.get(ctx, "/openapi/v2", "application/json", r.doc2.tag)
	var refused *statusError
	switch {
	case errors.As(err, &refused) && refused.code == http.StatusNotFound:
		return document{}, nil
	case err != nil:
		return document{}, err
	case got.code == http.StatusNotModified:
		return r.doc2, nil
	case !json.Valid(got.body):
		return document{}, errors.New("the OpenAPI v2 document is not JSON")
	}
	return document{got.header.Get("ETag"), got.body}, nil
}
