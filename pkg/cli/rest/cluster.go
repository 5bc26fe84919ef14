package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
)

// Object is an object in its wire form.
type Object = unstructured.Unstructured

// Cluster is an API server as seen by one user. It is safe for concurrent use.
type Cluster struct {
	client *client.Client
	warn   func(text string) // called with the server's warnings; may be nil

	// Timeout limits each request except streams and watches; 0: no limit.
	Timeout time.Duration

	mu    sync.Mutex
	kinds []*Kind
}

// New returns a Cluster that uses c. warn is called with the server's warnings,
// from the goroutine of the request; it may be nil.
func New(c *client.Client, warn func(string)) *Cluster {
	return &Cluster{client: c, warn: warn}
}

// WithWarnings returns a Cluster of the same client that calls warn with the
// server's warnings; nil drops them.
func (c *Cluster) WithWarnings(warn func(string)) *Cluster {
	return &Cluster{client: c.client, warn: warn, Timeout: c.Timeout}
}

// Client returns the underlying client, for typed requests and streams.
func (c *Cluster) Client() *client.Client { return c.client }

// asJSON requests JSON unless the request's header has an Accept.
func asJSON(r client.Request) client.Request {
	h := http.Header{"Accept": {"application/json"}}
	for k, v := range r.Header {
		h[k] = v
	}
	r.Header = h
	return r
}

// Do sends a request and returns the body, in JSON unless the request's header
// says otherwise, and the header of the response.
func (c *Cluster) Do(ctx context.Context, r client.Request) ([]byte, http.Header, error) {
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	body, header, err := c.client.Do(ctx, asJSON(r))
	if err == nil {
		c.warnings(header)
	}
	return body, header, err
}

// Stream is Do for responses that are read while they arrive. Timeout does not
// apply. The caller closes the reader.
func (c *Cluster) Stream(ctx context.Context, r client.Request) (io.ReadCloser, error) {
	resp, err := c.client.Stream(ctx, asJSON(r))
	if err != nil {
		return nil, err
	}
	c.warnings(resp.Header)
	return resp.Body, nil
}

// warnings calls warn with the warnings of a response.
func (c *Cluster) warnings(h http.Header) {
	if c.warn == nil {
		return
	}
	for _, text := range Warnings(h) {
		c.warn(text)
	}
}

// Warnings returns the texts of Warning headers: 299 - "text".
func Warnings(h http.Header) (out []string) {
	for _, value := range h.Values("Warning") {
		if len(value) > len(`299 - `) {
			if text, err := strconv.Unquote(value[len(`299 - `):]); err == nil {
				out = append(out, text)
			}
		}
	}
	return out
}

// Get reads an object, or the subresource in parts.
func (c *Cluster) Get(ctx context.Context, k *Kind, namespace, name string, parts ...string) (*Object, error) {
	return c.object(ctx, client.Request{Path: k.Path(namespace, name, parts...)})
}

// GetAs reads an object or a list in another form, such as a Table, and decodes
// it into into.
func (c *Cluster) GetAs(ctx context.Context, path string, query url.Values, accept string, into any) error {
	body, _, err := c.Do(ctx, client.Request{Path: path, Query: query, Header: http.Header{"Accept": {accept}}})
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("read the answer to %s: %w", path, err)
	}
	return nil
}

// pageSize is the number of objects that one list request asks for.
const pageSize = 500

// List reads all objects that the query selects, in pages. "" is all
// namespaces. The kind and metadata of the result are those of the first page.
func (c *Cluster) List(ctx context.Context, k *Kind, namespace string, query url.Values) (*unstructured.UnstructuredList, error) {
	var out *unstructured.UnstructuredList
	q := url.Values{}
	for key, v := range query {
		q[key] = v
	}
	if q.Get("limit") == "" {
		q.Set("limit", strconv.Itoa(pageSize))
	}
	for {
		body, _, err := c.Do(ctx, client.Request{Path: k.Path(namespace, ""), Query: q})
		if err != nil {
			return nil, err
		}
		page := &unstructured.UnstructuredList{}
		if err := page.UnmarshalJSON(body); err != nil {
			return nil, fmt.Errorf("read the list of %s: %w", k.Plural(), err)
		}
		for i := range page.Items { // items of a list may lack apiVersion and kind
			page.Items[i].SetGroupVersionKind(k.GroupVersionKind)
		}
		if out == nil {
			out = page
		} else {
			out.Items = append(out.Items, page.Items...)
		}
		next := page.GetContinue()
		if next == "" {
			out.SetContinue("")
			out.SetRemainingItemCount(nil)
			return out, nil
		}
		q.Set("continue", next)
	}
}

// WriteQuery returns the query parameters of a write request.
func WriteQuery(dryRun bool, manager string) url.Values {
	q := url.Values{"fieldManager": {manager}}
	if dryRun {
		q.Set("dryRun", metav1.DryRunAll)
	}
	return q
}

// Create creates an object and returns it as stored.
func (c *Cluster) Create(ctx context.Context, k *Kind, namespace string, obj *Object, query url.Values) (*Object, error) {
	body, err := obj.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return c.object(ctx, client.Request{
		Method: http.MethodPost, Path: k.Path(namespace, ""), Query: query, Body: body,
		Header: http.Header{"Content-Type": {"application/json"}},
	})
}

// Post sends an object to a path that responds with another: a subresource or a
// review.
func (c *Cluster) Post(ctx context.Context, path string, obj *Object) (*Object, error) {
	body, err := obj.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return c.object(ctx, client.Request{
		Method: http.MethodPost, Path: path, Body: body, Header: http.Header{"Content-Type": {"application/json"}},
	})
}

// Update replaces an object, or the subresource in parts, and returns it as stored.
// The resource version in obj, if any, must match.
func (c *Cluster) Update(ctx context.Context, k *Kind, namespace string, obj *Object, query url.Values, parts ...string) (*Object, error) {
	body, err := obj.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return c.object(ctx, client.Request{
		Method: http.MethodPut, Path: k.Path(namespace, obj.GetName(), parts...), Query: query, Body: body,
		Header: http.Header{"Content-Type": {"application/json"}},
	})
}

// Patch patches an object, or the subresource in parts, and returns it as
// stored.
func (c *Cluster) Patch(ctx context.Context, k *Kind, namespace, name string, pt types.PatchType, data []byte, query url.Values, parts ...string) (*Object, error) {
	return c.object(ctx, client.Request{
		Method: http.MethodPatch, Path: k.Path(namespace, name, parts...), Query: query, Body: data,
		Header: http.Header{"Content-Type": {string(pt)}},
	})
}

// Delete requests the deletion of an object and returns the response: the
// object that is being deleted, or a Status.
func (c *Cluster) Delete(ctx context.Context, k *Kind, namespace, name string, opts metav1.DeleteOptions) (*Object, error) {
	opts.Kind, opts.APIVersion = "DeleteOptions", "v1"
	body, err := json.Marshal(opts)
	if err != nil {
		return nil, err
	}
	return c.object(ctx, client.Request{
		Method: http.MethodDelete, Path: k.Path(namespace, name), Body: body,
		Header: http.Header{"Content-Type": {"application/json"}},
	})
}

func (c *Cluster) object(ctx context.Context, r client.Request) (*Object, error) {
	body, _, err := c.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	obj := &Object{}
	if err := obj.UnmarshalJSON(body); err != nil {
		return nil, fmt.Errorf("read the answer to %s: %w", r.Path, err)
	}
	return obj, nil
}
