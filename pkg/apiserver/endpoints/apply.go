package endpoints

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/yaml"

	"podium/pkg/apiserver/budget"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
)

// applier is the function that merges an applied configuration into the
// present state, or into nothing if there is none.
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
	f, err := c.res.api.managed.manager(c.res, sub)
	if err != nil {
		return nil, noManager(err)
	}
	return func(cur *present) (scheme.Object, error) {
		live := c.res.New()
		if cur != nil {
			if err := trackable(cur.obj); err != nil {
				return nil, c.res.writeError(c.info.Name, err)
			}
			live = cur.obj.DeepCopyObject().(scheme.Object)
		} else {
			live.SetName(c.info.Name)
			if c.res.Namespaced {
				live.SetNamespace(c.info.Namespace)
			}
		}
		if sub == "" {
			if err := bookLastApplied(f, live, c.res); err != nil {
				return nil, apierrors.NewInternalError(err)
			}
		}
		next, err := applyTo(f, live, applied, c.res.gvk(), p)
		if err != nil {
			return nil, err
		}
		obj := next.(scheme.Object)
		return obj, c.checkPatched(obj)
	}, nil
}

// noManager is the error of a kind that cannot be applied.
func noManager(err error) error {
	if errors.Is(err, errNoSchema) {
		return wire.UnsupportedMedia(patchTypes()[:3])
	}
	return apierrors.NewInternalError(err)
}

// applyTo merges and leaves the result without type metadata.
func applyTo(f *managedfields.FieldManager, live runtime.Object, applied *unstructured.Unstructured, gvk schema.GroupVersionKind, p patchCall) (runtime.Object, error) {
	live.GetObjectKind().SetGroupVersionKind(gvk)
	next, err := f.Apply(live, applied.DeepCopy(), p.manager, p.force)
	if err != nil {
		return nil, applyError(err)
	}
	next.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return next, nil
}

// applyError keeps an API error and makes a 400 of any other: what is wrong
// then is wrong with the configuration.
func applyError(err error) error {
	if _, ok := err.(apierrors.APIStatus); ok {
		return err
	}
	return apierrors.NewBadRequest(err.Error())
}

// readApplied reads the applied configuration, YAML or JSON.
func (c *call) readApplied(p patchCall) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	if err := yaml.Unmarshal(p.data, &obj.Object); err != nil {
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
		whole.Object["spec"] = map[string]any{"replicas": replicas}
	}
	f, err := c.res.api.managed.manager(c.res, c.sub.Name)
	if err != nil {
		return noManager(err)
	}
	p.applied = true
	return c.storeView(p.writeOptions, func(cur *present) (scheme.Object, error) {
		next, err := applyTo(f, cur.obj.DeepCopyObject(), whole, c.res.gvk(), p)
		if err != nil {
			return nil, err
		}
		obj := next.(scheme.Object)
		return obj, c.checkPatched(obj)
	})
}
