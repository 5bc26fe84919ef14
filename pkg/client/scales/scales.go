// Package scales reads and writes the scale subresource of objects of any kind, custom
// resources included.
package scales

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/client"
	"podium/pkg/client/discovery"
)

// Client reads and writes scales. It is safe for concurrent use.
type Client struct {
	client *client.Client
	kinds  *discovery.Resolver
}

// New returns a client that finds resources through kinds.
func New(c *client.Client, kinds *discovery.Resolver) *Client { return &Client{c, kinds} }

// Get returns the scale of an object. The version of kind is only for the error message if
// the server does not serve the kind.
func (c *Client) Get(ctx context.Context, namespace string, kind schema.GroupVersionKind, name string) (*autoscalingv1.Scale, error) {
	return c.do(ctx, namespace, kind, name, client.Request{})
}

// Update replaces the scale of an object. It fails with a conflict if the object has
// changed since the scale was read.
func (c *Client) Update(ctx context.Context, kind schema.GroupVersionKind, s *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
	out := *s
	out.APIVersion, out.Kind = autoscalingv1.SchemeGroupVersion.String(), "Scale"
	body, err := json.Marshal(&out)
	if err != nil {
		return nil, err
	}
	return c.do(ctx, s.Namespace, kind, s.Name, client.Request{
		Method: http.MethodPut, Body: body, Header: http.Header{"Content-Type": {"application/json"}},
	})
}

func (c *Client) do(ctx context.Context, namespace string, kind schema.GroupVersionKind, name string, r client.Request) (*autoscalingv1.Scale, error) {
	resource, err := c.kinds.Resource(ctx, kind)
	if err != nil {
		return nil, err
	}
	switch {
	case !resource.Namespaced:
		return nil, fmt.Errorf("%s is not namespaced", resource.GVR().GroupResource())
	case !slices.Contains(resource.Subresources, "scale"):
		c.kinds.Forget(kind.GroupKind()) // a CustomResourceDefinition may get the subresource later
		return nil, fmt.Errorf("%s does not implement the scale subresource", resource.GVR().GroupResource())
	}
	r.Path = client.CollectionPath(resource.Kind, namespace) + "/" + url.PathEscape(name) + "/scale"
	body, _, err := c.client.Do(ctx, r)
	if apierrors.IsNotFound(err) {
		c.kinds.Forget(kind.GroupKind())
	}
	if err != nil {
		return nil, err
	}
	out := &autoscalingv1.Scale{}
	if err := json.Unmarshal(body, out); err != nil {
		return nil, fmt.Errorf("decode the scale of %s %s: %w", resource.Resource, name, err)
	}
	return out, nil
}
