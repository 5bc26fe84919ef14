package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/scheme"
)

// Resource reads and writes the objects of one kind. It is a value: In returns a copy
// for a namespace.
type Resource[T scheme.Object] struct {
	client    *Client
	kind      *scheme.Kind
	namespace string
}

// List is a list of objects.
type List[T scheme.Object] struct {
	metav1.ListMeta
	Items []T
}

var errNoNamespace = errors.New("the kind is namespaced and no namespace is given")

// For returns the resource of T. T must be a served kind.
func For[T scheme.Object](c *Client) Resource[T] {
	return Resource[T]{client: c, kind: scheme.KindOf[T](c.scheme)}
}

// In restricts the resource to a namespace; "" means all namespaces.
func (r Resource[T]) In(namespace string) Resource[T] {
	r.namespace = namespace
	return r
}

// Get reads one object from the server.
func (r Resource[T]) Get(ctx context.Context, name string) (T, error) {
	return r.one(ctx, http.MethodGet, r.namespace, name, nil, nil)
}

// List reads the objects selected by opts.
func (r Resource[T]) List(ctx context.Context, opts metav1.ListOptions) (*List[T], error) {
	body, header, err := r.client.Do(ctx, Request{
		Path:   r.collection(r.namespace),
		Query:  ListQuery(opts),
		Header: http.Header{"Accept": {acceptObject}},
	})
	if err != nil {
		return nil, err
	}
	return decodeList[T](r.client, body, mediaType(header))
}

// Create stores a new object in its own namespace, or else in the resource's. It
// returns the stored object.
func (r Resource[T]) Create(ctx context.Context, obj T) (T, error) {
	return r.one(ctx, http.MethodPost, r.namespaceOf(obj), "", nil, obj)
}

// Update replaces the object that has obj's name. It returns the stored object.
func (r Resource[T]) Update(ctx context.Context, obj T) (T, error) {
	return r.one(ctx, http.MethodPut, r.namespaceOf(obj), obj.GetName(), nil, obj)
}

// UpdatePart replaces the part of the object that a subresource covers.
func (r Resource[T]) UpdatePart(ctx context.Context, obj T, subresource string) (T, error) {
	return r.one(ctx, http.MethodPut, r.namespaceOf(obj), obj.GetName(), []string{subresource}, obj)
}

// UpdateStatus replaces the object's status only.
func (r Resource[T]) UpdateStatus(ctx context.Context, obj T) (T, error) {
	return r.UpdatePart(ctx, obj, "status")
}

// Patch patches an object or, if given, one of its subresources.
func (r Resource[T]) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, subresources ...string) (T, error) {
	var none T
	path, err := r.object(r.namespace, name, subresources...)
	if err != nil {
		return none, err
	}
	return r.answer(ctx, Request{
		Method: http.MethodPatch,
		Path:   path,
		Header: http.Header{"Content-Type": {string(pt)}, "Accept": {acceptObject}},
		Body:   data,
	})
}

// Delete requests the deletion of an object, which may outlive the call (finalizers,
// grace period).
func (r Resource[T]) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	path, err := r.object(r.namespace, name)
	if err != nil {
		return err
	}
	req := Request{Method: http.MethodDelete, Path: path, Header: http.Header{"Accept": {acceptObject}}}
	if !reflect.DeepEqual(opts, metav1.DeleteOptions{}) {
		if req.Body, err = encodeOptions(&opts); err != nil {
			return err
		}
		req.Header.Set("Content-Type", scheme.Protobuf)
	}
	_, _, err = r.client.Do(ctx, req)
	return err
}

// DeleteCollection requests the deletion of all objects that opts select.
func (r Resource[T]) DeleteCollection(ctx context.Context, opts metav1.ListOptions) error {
	_, _, err := r.client.Do(ctx, Request{
		Method: http.MethodDelete, Path: r.collection(r.namespace), Query: ListQuery(opts), Header: http.Header{"Accept": {acceptObject}},
	})
	return err
}

// Post sends in to a subresource (binding, eviction, token, ...) and decodes the
// response into out, which may be nil.
func (r Resource[T]) Post(ctx context.Context, name, subresource string, in, out runtime.Object) error {
	path, err := r.object(r.namespace, name, subresource)
	if err != nil {
		return err
	}
	return r.client.Post(ctx, path, in, out)
}

// Post sends in to a path and decodes the response into out, which may be nil.
func (c *Client) Post(ctx context.Context, path string, in, out runtime.Object) error {
	data, err := c.scheme.Encode(in, scheme.Protobuf)
	if err != nil {
		return err
	}
	body, header, err := c.Do(ctx, Request{
		Method: http.MethodPost, Path: path, Body: data,
		Header: http.Header{"Content-Type": {scheme.Protobuf}, "Accept": {acceptObject}},
	})
	if err != nil || out == nil {
		return err
	}
	return c.decodeInto(body, mediaType(header), out)
}

// one sends obj, which may be nil, to one object's path and decodes the response.
func (r Resource[T]) one(ctx context.Context, method, namespace, name string, subresources []string, obj runtime.Object) (T, error) {
	var none T
	req := Request{Method: method, Header: http.Header{"Accept": {acceptObject}}}
	var err error
	if method == http.MethodPost {
		req.Path = r.collection(namespace)
		if r.kind.Namespaced && namespace == "" {
			err = fmt.Errorf("create %s: %w", r.kind.Singular, errNoNamespace)
		}
	} else {
		req.Path, err = r.object(namespace, name, subresources...)
	}
	if err != nil {
		return none, err
	}
	if obj != nil {
		if req.Body, err = r.client.scheme.Encode(obj, scheme.Protobuf); err != nil {
			return none, err
		}
		req.Header.Set("Content-Type", scheme.Protobuf)
	}
	return r.answer(ctx, req)
}

func (r Resource[T]) answer(ctx context.Context, req Request) (T, error) {
	var none T
	body, header, err := r.client.Do(ctx, req)
	if err != nil {
		return none, err
	}
	out := r.kind.New().(T)
	if err := r.client.decodeInto(body, mediaType(header), out); err != nil {
		return none, err
	}
	return out, nil
}

func (r Resource[T]) namespaceOf(obj T) string {
	if ns := obj.GetNamespace(); ns != "" {
		return ns
	}
	return r.namespace
}

// collection returns the path of the objects in a namespace, or in all.
func (r Resource[T]) collection(namespace string) string {
	return CollectionPath(r.kind, namespace)
}

func (r Resource[T]) object(namespace, name string, subresources ...string) (string, error) {
	if name == "" {
		return "", fmt.Errorf("%s: no name is given", r.kind.Singular)
	}
	if r.kind.Namespaced && namespace == "" {
		return "", fmt.Errorf("%s %q: %w", r.kind.Singular, name, errNoNamespace)
	}
	path := r.collection(namespace) + "/" + url.PathEscape(name)
	for _, s := range subresources {
		path += "/" + url.PathEscape(s)
	}
	return path, nil
}

// CollectionPath is the URL path of a kind's objects, in one namespace or, with "", in all.
func CollectionPath(k *scheme.Kind, namespace string) string {
	path := "/apis/" + k.Group + "/" + k.Version
	if k.Group == "" {
		path = "/api/" + k.Version
	}
	if k.Namespaced && namespace != "" {
		path += "/namespaces/" + url.PathEscape(namespace)
	}
	return path + "/" + k.Resource
}

// assign moves the value of from into out; both must have the same type.
func assign(out, from runtime.Object) error {
	dst, src := reflect.ValueOf(out), reflect.ValueOf(from)
	if dst.Type() != src.Type() {
		return fmt.Errorf("decode %T: the server sent a %T", out, from)
	}
	dst.Elem().Set(src.Elem())
	return nil
}

func encodeOptions(opts *metav1.DeleteOptions) ([]byte, error) {
	raw, err := scheme.BareProto(opts)
	if err != nil {
		return nil, err
	}
	return scheme.TypedProto(schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}, raw)
}

// ListQuery encodes list options as a URL query.
func ListQuery(o metav1.ListOptions) url.Values {
	q := url.Values{}
	set := func(key, value string) {
		if value != "" {
			q.Set(key, value)
		}
	}
	set("labelSelector", o.LabelSelector)
	set("fieldSelector", o.FieldSelector)
	set("resourceVersion", o.ResourceVersion)
	set("resourceVersionMatch", string(o.ResourceVersionMatch))
	set("continue", o.Continue)
	if o.Watch {
		q.Set("watch", "true")
	}
	if o.AllowWatchBookmarks {
		q.Set("allowWatchBookmarks", "true")
	}
	if o.TimeoutSeconds != nil {
		q.Set("timeoutSeconds", strconv.FormatInt(*o.TimeoutSeconds, 10))
	}
	if o.Limit != 0 {
		q.Set("limit", strconv.FormatInt(o.Limit, 10))
	}
	if o.SendInitialEvents != nil {
		q.Set("sendInitialEvents", strconv.FormatBool(*o.SendInitialEvents))
	}
	return q
}
