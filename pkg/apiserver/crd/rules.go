package crd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"podium/pkg/apiserver/registry"
)

// rules are the rules of the custom resources of one version.
type rules struct {
	gvk         schema.GroupVersionKind
	resource    schema.GroupResource
	shape       *shape
	columns     []column
	fields      []selectable
	status      bool // there is a status subresource
	scale       *apiextensionsv1.CustomResourceSubresourceScale
	terminating *atomic.Bool
}

// prune drops the fields that the schema does not have and returns them.
func (r *rules) prune(u *unstructured.Unstructured) (unknown []error) {
	s := r.shape.structural()
	paths := pruning.PruneWithOptions(u.Object, s, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, s)
	// validate reports the error of metadata that has wrong types.
	_, embedded := objectmeta.CoerceWithOptions(nil, u.Object, s, false, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	for _, path := range append(paths, embedded...) {
		unknown = append(unknown, fmt.Errorf("unknown field %q", path))
	}
	return unknown
}

func (r *rules) setDefaults(u *unstructured.Unstructured) {
	defaulting.Default(u.Object, r.shape.structural())
}

// prepare protects the status if it has a subresource, and updates the generation,
// which counts changes of everything but metadata and a protected status.
func (r *rules) prepare(_ context.Context, _ registry.Backend, new, old *unstructured.Unstructured) error {
	if old == nil {
		if r.terminating.Load() {
			return apierrors.NewForbidden(r.resource, new.GetName(), errors.New("create not allowed while custom resource definition is terminating"))
		}
		if r.status {
			delete(new.Object, "status")
		}
		new.SetGeneration(1)
		return nil
	}
	if r.status {
		setStatus(new, old)
	}
	if !apiequality.Semantic.DeepEqual(withoutMetadata(new), withoutMetadata(old)) {
		new.SetGeneration(old.GetGeneration() + 1)
	}
	return nil
}

// setStatus makes the status of u that of from.
func setStatus(u, from *unstructured.Unstructured) {
	if status, ok := from.Object["status"]; ok {
		u.Object["status"] = status
	} else {
		delete(u.Object, "status")
	}
}

func withoutMetadata(u *unstructured.Unstructured) map[string]any {
	out := maps.Clone(u.Object)
	delete(out, "metadata")
	return out
}

// keepAllButStatus makes new the successor of old in a write of the status
// subresource.
func keepAllButStatus(new, old *unstructured.Unstructured) {
	status, revision := &unstructured.Unstructured{Object: new.Object}, new.GetResourceVersion()
	managed, tracked, _ := unstructured.NestedFieldNoCopy(new.Object, "metadata", "managedFields")
	kept := old.DeepCopy()
	setStatus(kept, status)
	new.Object = kept.Object
	new.SetManagedFields(nil)
	if metadata, ok := new.Object["metadata"].(map[string]any); ok && tracked {
		metadata["managedFields"] = managed
	}
	new.SetResourceVersion(revision)
}

// finalizerWarnings warns of new finalizers whose names may collide with others.
func finalizerWarnings(new, old *unstructured.Unstructured) (out []string) {
	standard := []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents, string(corev1.FinalizerKubernetes)}
	for _, name := range new.GetFinalizers() {
		if old != nil && slices.Contains(old.GetFinalizers(), name) {
			continue
		}
		warn := func(text string) { out = append(out, fmt.Sprintf("metadata.finalizers: %q: %s", name, text)) }
		for _, problem := range validation.IsQualifiedName(name) {
			warn(problem)
		}
		switch {
		case strings.Contains(name, "/"), slices.Contains(standard, name):
		case strings.Contains(name, "."):
			warn("prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers")
		default:
			warn("prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers")
		}
	}
	return out
}
