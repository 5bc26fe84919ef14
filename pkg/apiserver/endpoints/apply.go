package endpoints

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"podium/pkg/apiserver/budget"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
)

// applier returns a function that merges an applied configuration into the present
// state, or into an empty object if the present state is nil.
func (c *call) applier(p patchCall) (func(*present) (scheme.Object, error), error) {
	applied, err := c.readApplied(p)
	if err != nil {
		return nil, err
	}
	if len(p.data) > budget.FewFields {
		if err := c.res.storable(applied); err != nil {
			return nil, c.res.writeError(c.info.Name, err)
		}
	}
	sub := ""
	if c.sub != nil {
		sub = c.sub.Name
	}
	f, err := c.res.fieldManager(sub)
	if err != nil {
		return nil, c.noManager(err)
	}
	return func(cur *present) (scheme.Object, error) {
		live := c.res.New()
		if cur != nil {
			if err := c.res.trackable(cur.obj); err != nil {
				return nil, c.res.writeError(c.info.Name, err)
			}
			live = cur.obj.DeepCopyObject().(scheme.Object)
		} else {
			live.SetName(c.info.Name)
			if c.res.Namespaced {
				live.SetNamespace(c.info.Namespace)
			}
		}
		return c.applyTo(f, live, applied, p)
	}, nil
}

// noManager returns the error for a kind that does not support server-side apply:
// 415 if the kind has no schema, 500 otherwise.
func (c *call) noManager(err error) error {
	if errors.Is(err, errNoSchema) {
		accepted := c.res.patchTypes()
		return wire.UnsupportedMedia(accepted[:len(accepted)-1])
	}
	return apierrors.NewInternalError(err)
}

// applyTo merges a configuration in the version of the call into live, an object of
// the storage version, which it changes. The result is of the storage version and
// has no type metadata.
func (c *call) applyTo(f *managedfields.FieldManager, live scheme.Object, applied *unstructured.Unstructured, p patchCall) (scheme.Object, error) {
	live.GetObjectKind().SetGroupVersionKind(c.res.resource.gvk())
	next, err := f.Apply(live, applied.DeepCopy(), p.manager, p.force)
	if err != nil {
		return nil, applyError(err)
	}
	obj := next.(scheme.Object)
	clearKind(obj)
	var unknown []error
	if c.res.Prune != nil {
		unknown = c.res.Prune(obj)
	}
	if err := c.patchProblems(p, unknown); err != nil {
		return nil, err
	}
	c.res.setDefaults(obj)
	return obj, c.checkPatched(obj)
}

// applyError returns API errors unchanged and turns any other error of the merge
// into a 400, because the configuration causes it.
func applyError(err error) error {
	if _, ok := err.(apierrors.APIStatus); ok {
		return err
	}
	return apierrors.NewBadRequest(err.Error())
}

// readApplied decodes the applied configuration, which is YAML or JSON, and fills
// in the name and namespace of the URL.
func (c *call) readApplied(p patchCall) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	text, err := yaml.YAMLToJSON(p.data)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, &obj.Object)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
	}
	if p.validation != metav1.FieldValidationIgnore {
		if err := yaml.UnmarshalStrict(p.data, &map[string]any{}); err != nil {
			if p.validation == metav1.FieldValidationStrict {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("error strict decoding YAML: %v", err))
			}
			c.warn([]error{err})
		}
	}
	want := c.res.gvk()
	if c.sub != nil && c.sub.View != nil {
		want = c.sub.GVK
	}
	if err := checkApplied(obj, want); err != nil {
		return nil, err
	}
	if obj.GetName() == "" {
		obj.SetName(c.info.Name)
	}
	if obj.GetNamespace() == "" && c.res.Namespaced {
		obj.SetNamespace(c.info.Namespace)
	}
	return obj, nil
}

func checkApplied(obj *unstructured.Unstructured, want schema.GroupVersionKind) error {
	if len(obj.Object) == 0 {
		return apierrors.NewBadRequest("apply needs an object: the body of the request is empty")
	}
	if _, err := meta.Accessor(obj); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if m, ok := obj.Object["metadata"]; ok {
		if _, ok := m.(map[string]any); !ok {
			return apierrors.NewBadRequest("metadata must be an object")
		}
	}
	gvk := obj.GroupVersionKind()
	if gvk.Version == "" || gvk.Kind == "" {
		return apierrors.NewBadRequest("apiVersion and kind must be set in an applied configuration")
	}
	if gvk.GroupVersion() != want.GroupVersion() {
		return apierrors.NewBadRequest(fmt.Sprintf("Incorrect version specified in apply patch. Specified patch version: %s, expected: %s", gvk.GroupVersion(), want.GroupVersion()))
	}
	return checkKind(gvk, want)
}

// applyView applies a configuration of a view. Only the number of replicas can
// be applied through one: it is booked on the object's own field.
func (c *call) applyView(p patchCall) error {
	applied, err := c.readApplied(p)
	if err != nil {
		return err
	}
	whole := &unstructured.Unstructured{Object: map[string]any{}}
	whole.SetGroupVersionKind(c.res.gvk())
	whole.SetName(applied.GetName())
	whole.SetNamespace(applied.GetNamespace())
	if replicas, ok, err := unstructured.NestedFieldNoCopy(applied.Object, "spec", "replicas"); err != nil {
		return apierrors.NewBadRequest(err.Error())
	} else if ok {
		path := c.sub.Replicas
		if path == nil {
			path = []string{"spec", "replicas"}
		}
		if err := unstructured.SetNestedField(whole.Object, replicas, path...); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
	}
	f, err := c.res.fieldManager(c.sub.Name)
	if err != nil {
		return c.noManager(err)
	}
	p.applied = true
	return c.storeView(p.writeOptions, func(cur *present) (scheme.Object, error) {
		return c.applyTo(f, cur.obj.DeepCopyObject().(scheme.Object), whole, p)
	})
}
