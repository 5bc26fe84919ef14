package endpoints

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
	"podium/pkg/storage/watchcache"
)

// The versions of a kind with a Converter. The watch cache has the objects as they are
// stored, so that neither the feed nor the start of the server depends on a webhook.
// Requests convert what they show. Deletes, and reads of metadata only, convert
// nothing: the garbage collector and the deletion of namespaces work without the
// webhook, too.

// converts reports whether a Converter converts between the versions of the resource.
func (r *resource) converts() bool { return r.Kind.Convert != nil }

// restoreTyped decodes the message of a cache entry with type metadata.
func restoreTyped(message []byte) (scheme.Object, error) {
	obj := &unstructured.Unstructured{}
	return obj, kjson.UnmarshalCaseSensitivePreserveInts(message, &obj.Object)
}

// convert returns objects with type metadata in the version of the resource, without
// type metadata. It does not modify objs, but the results may share memory with them.
func (r *resource) convert(ctx context.Context, objs []scheme.Object) ([]scheme.Object, error) {
	out := make([]scheme.Object, len(objs))
	var foreign []*unstructured.Unstructured
	var places []int
	for i, obj := range objs {
		u := obj.(*unstructured.Unstructured)
		if u.GroupVersionKind() == r.gvk() {
			bare := &unstructured.Unstructured{Object: maps.Clone(u.Object)}
			clearKind(bare)
			out[i] = bare
			continue
		}
		foreign, places = append(foreign, u), append(places, i)
	}
	if len(foreign) == 0 {
		return out, nil
	}
	converted, err := r.Kind.Convert(ctx, r.gvk(), foreign)
	if err != nil {
		return nil, err
	}
	for n, u := range converted {
		clearKind(u)
		complete(&r.Of, u)
		out[places[n]] = u
	}
	return out, nil
}

// fromVersion converts one object without type metadata from another version.
func (r *resource) fromVersion(ctx context.Context, gvk schema.GroupVersionKind, obj scheme.Object) (scheme.Object, error) {
	typed := &unstructured.Unstructured{Object: maps.Clone(obj.(*unstructured.Unstructured).Object)}
	typed.SetGroupVersionKind(gvk)
	out, err := r.convert(ctx, []scheme.Object{typed})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// seen returns entries of the cache as the version of the resource shows them. It asks
// the converter once for those that were not read in this version before.
func (r *resource) seen(ctx context.Context, entries []*watchcache.Entry) ([]*watchcache.Entry, error) {
	if !r.converts() || r == r.raw {
		return entries, nil
	}
	return watchcache.Derive(ctx, entries, r.gvk().Version, func(objs []scheme.Object) ([]scheme.Object, error) {
		return r.convert(context.WithoutCancel(ctx), objs) // other requests wait for the same objects
	}, r.fields)
}

// onlyMetadata reports whether a client wants metadata only. A converter may change
// nothing of it but labels and annotations; the client gets those that are stored.
func onlyMetadata(f wire.Format) bool { return f.As != nil && f.As.Kind != wire.Table }

// seenOne is seen for one entry.
func (r *resource) seenOne(ctx context.Context, e *watchcache.Entry) (*watchcache.Entry, error) {
	out, err := r.seen(ctx, []*watchcache.Entry{e})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// seenStored returns the result of a write to asStored in the version of the resource.
func (r *resource) seenStored(ctx context.Context, s *stored) (*stored, error) {
	if !r.converts() {
		return s, nil
	}
	objs, err := r.convert(ctx, []scheme.Object{s.obj})
	if err != nil {
		return nil, err
	}
	return &stored{obj: objs[0]}, nil
}

// viewFor returns the resource that has the objects for an answer in the form f.
func (r *resource) viewFor(f wire.Format) *resource {
	if onlyMetadata(f) {
		return r.asStored()
	}
	return r
}

// asStored returns the resource that converts nothing.
func (r *resource) asStored() *resource {
	if r.raw != nil {
		return r.raw
	}
	return r
}

// entrances returns the versions through which requests reach the resource.
func (r *resource) entrances() []*version {
	if !r.converts() {
		return r.versions
	}
	out := make([]*version, len(r.views))
	for i, view := range r.views {
		out[i] = view.versions[0]
	}
	return out
}

// storedForms returns the forms of a write whose objects are of raw, the form of v
// first.
func (v *version) storedForms(ctx context.Context) []admission.Form {
	if v.raw == nil {
		return v.forms
	}
	others := slices.DeleteFunc(slices.Clone(v.stored.views), func(r *resource) bool { return r == v.resource })
	var out []admission.Form
	for _, view := range append([]*resource{v.resource}, others...) {
		form := view.versions[0].form()
		form.Show = func(obj runtime.Object) (runtime.Object, error) {
			shown, err := view.convert(ctx, []scheme.Object{obj.(scheme.Object)})
			if err != nil {
				return nil, err
			}
			return shown[0], nil
		}
		out = append(out, form)
	}
	return out
}

// patchMetadata applies a patch that changes metadata only to the object as it is
// stored, for a client that reads metadata only, such as the garbage collector. done
// means that it has answered: the patch was one.
func (c *call) patchMetadata(f wire.Format, p patchCall) (done bool, err error) {
	doc, err := parsePatch(p)
	if err != nil || len(doc.fields) != 1 || doc.fields["metadata"] == nil {
		return false, err
	}
	key := c.res.key(c.info.Namespace, c.info.Name)
	s, err := c.res.raw.mutate(c.ctx, key, c.info.Name, p.dryRun, func(cur *present) (out plan, err error) {
		gvk := cur.obj.GetObjectKind().GroupVersionKind()
		i := slices.IndexFunc(c.res.stored.views, func(r *resource) bool { return r.gvk() == gvk })
		view := c.res.stored.views[i] // decode knows only versions that have one
		o := p.writeOptions
		o.in = view.versions[0]
		old, next := cur.obj.DeepCopyObject().(scheme.Object), cur.obj.DeepCopyObject().(scheme.Object)
		clearKind(old)
		clearKind(next)
		problems, err := doc.apply(next, gvk)
		if err == nil {
			err = c.patchProblems(p, problems)
		}
		if err == nil {
			err = c.checkPatched(next)
		}
		if err == nil {
			out, err = view.planUpdate(c.ctx, old, next, o)
		}
		if out.next != nil {
			out.next.GetObjectKind().SetGroupVersionKind(gvk)
		}
		return out, err
	})
	if err != nil {
		return false, err
	}
	return true, c.respond(http.StatusOK, f, s)
}
