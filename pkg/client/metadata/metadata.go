package metadata

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"podium/pkg/client"
	"podium/pkg/scheme"
)

// Object is an object's metadata.
type Object = metav1.PartialObjectMetadata

// Kind reads and writes the metadata of the objects of one kind.
type Kind struct {
	*scheme.Kind
	client *client.Client
}

// Of returns the client of a kind. It uses only the names in k.
func Of(c *client.Client, k *scheme.Kind) Kind { return Kind{Kind: k, client: c} }

// The server may answer with whole objects: their metadata is in the same place.
const (
	acceptOne   = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	acceptList  = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	acceptWatch = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1;stream=watch," + acceptOne
)

// Get reads one object.
func (k Kind) Get(ctx context.Context, namespace, name string) (*Object, error) {
	return k.one(ctx, client.Request{Path: k.object(namespace, name), Header: http.Header{"Accept": {acceptOne}}})
}

// Patch applies a patch, which it encodes as JSON, to one object.
func (k Kind) Patch(ctx context.Context, namespace, name string, pt types.PatchType, patch any) (*Object, error) {
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	return k.one(ctx, client.Request{
		Method: http.MethodPatch, Path: k.object(namespace, name), Body: data,
		Header: http.Header{"Accept": {acceptOne}, "Content-Type": {string(pt)}},
	})
}

// Delete deletes one object.
func (k Kind) Delete(ctx context.Context, namespace, name string, opts metav1.DeleteOptions) error {
	return k.delete(ctx, k.object(namespace, name), opts)
}

// DeleteAll deletes all objects of the kind in a namespace.
func (k Kind) DeleteAll(ctx context.Context, namespace string, opts metav1.DeleteOptions) error {
	return k.delete(ctx, client.CollectionPath(k.Kind, namespace), opts)
}

// In lists the objects in a namespace, in all namespaces with "".
func (k Kind) In(ctx context.Context, namespace string) ([]*Object, error) {
	list, err := k.list(ctx, namespace, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// List implements informer.Source.
func (k Kind) List(ctx context.Context, opts metav1.ListOptions) (*client.List[*Object], error) {
	return k.list(ctx, "", opts)
}

// Watch implements informer.Source.
func (k Kind) Watch(ctx context.Context, opts metav1.ListOptions) (*client.Watch[*Object], error) {
	opts.Watch = true
	ctx, cancel := context.WithCancel(ctx)
	resp, err := k.client.Stream(ctx, client.Request{
		Path: client.CollectionPath(k.Kind, ""), Query: client.ListQuery(opts), Header: http.Header{"Accept": {acceptWatch}},
	})
	if err != nil {
		cancel()
		return nil, err
	}
	events := json.NewDecoder(bufio.NewReader(resp.Body))
	next := func() (client.Event[*Object], error) {
		var e struct {
			Type   watch.EventType
			Object json.RawMessage
		}
		if err := events.Decode(&e); err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return client.Event[*Object]{}, err
		}
		if e.Type == watch.Error {
			return client.Event[*Object]{}, statusOf(e.Object)
		}
		obj, err := decode(e.Object)
		return client.Event[*Object]{Type: e.Type, Object: obj}, err
	}
	stop := func() {
		cancel()
		resp.Body.Close()
	}
	return client.NewWatch(next, stop), nil
}

func (k Kind) object(namespace, name string) string {
	return client.CollectionPath(k.Kind, namespace) + "/" + url.PathEscape(name)
}

func (k Kind) one(ctx context.Context, r client.Request) (*Object, error) {
	body, _, err := k.client.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	return decode(body)
}

func (k Kind) delete(ctx context.Context, path string, opts metav1.DeleteOptions) error {
	body, err := json.Marshal(opts)
	if err != nil {
		return err
	}
	_, _, err = k.client.Do(ctx, client.Request{
		Method: http.MethodDelete, Path: path, Body: body,
		Header: http.Header{"Accept": {scheme.JSON}, "Content-Type": {scheme.JSON}},
	})
	return err
}

func (k Kind) list(ctx context.Context, namespace string, opts metav1.ListOptions) (*client.List[*Object], error) {
	body, _, err := k.client.Do(ctx, client.Request{
		Path: client.CollectionPath(k.Kind, namespace), Query: client.ListQuery(opts), Header: http.Header{"Accept": {acceptList}},
	})
	if err != nil {
		return nil, err
	}
	var list struct {
		Metadata metav1.ListMeta
		Items    []*Object
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("decode the list of %s: %w", k.Resource, err)
	}
	for _, o := range list.Items {
		slim(o)
	}
	return &client.List[*Object]{ListMeta: list.Metadata, Items: list.Items}, nil
}

func decode(data []byte) (*Object, error) {
	obj := &Object{}
	if err := json.Unmarshal(data, obj); err != nil {
		return nil, fmt.Errorf("decode metadata: %w", err)
	}
	slim(obj)
	return obj, nil
}

// slim drops the fields that no caller reads. The type is known from the Kind.
func slim(o *Object) {
	o.TypeMeta = metav1.TypeMeta{}
	o.ManagedFields = nil
	delete(o.Annotations, "kubectl.kubernetes.io/last-applied-configuration")
}

func statusOf(data []byte) error {
	var s metav1.Status
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("decode a watch's error: %w", err)
	}
	return &apierrors.StatusError{ErrStatus: s}
}
