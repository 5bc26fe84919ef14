package addons

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/client"
	"podium/pkg/scheme"
)

// fieldManager is the field manager of server-side apply.
const fieldManager = "podium"

// decode parses a file of several YAML documents. Unknown fields are errors.
func decode(s *scheme.Scheme, file []byte) ([]runtime.Object, error) {
	var out []runtime.Object
	for _, document := range bytes.Split(file, []byte("\n---\n")) {
		obj, _, err := s.DecodeStrict(document, scheme.YAML, nil)
		if err != nil {
			return nil, err
		}
		out = append(out, obj)
	}
	return out, nil
}

// apply applies each object in order, by server-side apply with force. It stops
// at the first error.
func apply(ctx context.Context, c *client.Client, objects []runtime.Object) error {
	for _, obj := range objects {
		gvk, err := c.Scheme().GVKOf(obj)
		if err != nil {
			return err
		}
		kind := c.Scheme().ByKind(gvk)
		access, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		bare, err := scheme.BareJSON(obj)
		if err != nil {
			return err
		}
		_, _, err = c.Do(ctx, client.Request{
			Method: http.MethodPatch,
			Path:   client.CollectionPath(kind, access.GetNamespace()) + "/" + url.PathEscape(access.GetName()),
			Query:  url.Values{"fieldManager": {fieldManager}, "force": {"true"}},
			Header: http.Header{"Content-Type": {"application/apply-patch+yaml"}},
			Body:   scheme.TypedJSON(gvk, bare),
		})
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", kind.Singular, access.GetName(), err)
		}
	}
	return nil
}
