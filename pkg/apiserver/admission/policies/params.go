package policies

import (
	"context"
	"errors"
	"fmt"

	registration "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/admission"
	"podium/pkg/scheme"
)

// paramsOf returns the parameters that a binding refers to, as maps and lists: a
// single nil if the policy or the binding names none, and nothing if there is
// nothing to evaluate. namespace is the request's. The texts of errors are
// upstream's.
func paramsOf(ctx context.Context, o admission.Objects, kind *registration.ParamKind, ref *registration.ParamRef, namespace string) ([]map[string]any, error) {
	if kind == nil || ref == nil {
		return []map[string]any{nil}, nil
	}
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	resource := o.ResourceOf(gvk)
	if resource == nil || !resource.Stored() {
		return nil, fmt.Errorf("paramKind kind `%v` not known", gvk)
	}
	switch {
	case !resource.Namespaced && ref.Namespace != "":
		return nil, errors.New("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	case !resource.Namespaced:
		namespace = ""
	case ref.Namespace != "":
		namespace = ref.Namespace
	case namespace == "":
		return nil, errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
	}
	found, err := find(ctx, o, resource.GVR(), ref, namespace)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 && ref.ParameterNotFoundAction != nil && *ref.ParameterNotFoundAction == registration.DenyAction {
		return nil, errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")
	}
	var out []map[string]any
	for _, obj := range found {
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return nil, err
		}
		tree["apiVersion"], tree["kind"] = kind.APIVersion, kind.Kind
		out = append(out, tree)
	}
	return out, nil
}

// find returns the objects that a reference selects in a namespace.
func find(ctx context.Context, o admission.Objects, gvr schema.GroupVersionResource, ref *registration.ParamRef, namespace string) ([]scheme.Object, error) {
	if ref.Name != "" {
		obj, err := admission.Cached(ctx, o, gvr, namespace, ref.Name)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return []scheme.Object{obj}, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(ref.Selector)
	if err != nil {
		return nil, err
	}
	all, _, err := o.Watched(ctx, gvr, nil)
	var out []scheme.Object
	for _, obj := range all {
		if (namespace == "" || obj.GetNamespace() == namespace) && selector.Matches(labels.Set(obj.GetLabels())) {
			out = append(out, obj)
		}
	}
	return out, err
}
