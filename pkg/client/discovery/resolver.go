package discovery

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resolver finds the resource of a kind. It keeps what it has found, so that a known kind
// costs no request. It is safe for concurrent use.
type Resolver struct {
	client *Client
	mu     sync.Mutex
	known  map[schema.GroupKind]Resource
}

// NewResolver returns a resolver that knows no kind yet.
func NewResolver(c *Client) *Resolver {
	return &Resolver{client: c, known: map[schema.GroupKind]Resource{}}
}

// Resource returns the resource of a kind in the preferred version of its group. If the
// server does not serve the kind, the error is a *meta.NoKindMatchError, or a *FailedError
// if the server could not list all resources. The version of kind is only for that error.
func (r *Resolver) Resource(ctx context.Context, kind schema.GroupVersionKind) (Resource, error) {
	r.mu.Lock()
	found, ok := r.known[kind.GroupKind()]
	r.mu.Unlock()
	if ok {
		return found, nil
	}
	catalog, err := r.client.Catalog(ctx)
	if err != nil {
		return Resource{}, err
	}
	at := slices.IndexFunc(catalog.Resources, func(have Resource) bool { return have.GroupKind() == kind.GroupKind() })
	if at < 0 {
		return Resource{}, missing(&catalog, kind)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[kind.GroupKind()] = catalog.Resources[at]
	return catalog.Resources[at], nil
}

// Forget drops what is known of a kind: a request for its resource was answered with 404,
// so another version may be served now.
func (r *Resolver) Forget(kind schema.GroupKind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, kind)
}

func missing(catalog *Catalog, kind schema.GroupVersionKind) error {
	for _, gv := range catalog.Failed {
		if gv.Group == kind.Group {
			return catalog.Err()
		}
	}
	none := &meta.NoKindMatchError{GroupKind: kind.GroupKind()}
	if kind.Version != "" {
		none.SearchedVersions = []string{kind.Version}
	}
	return none
}
