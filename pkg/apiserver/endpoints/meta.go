package endpoints

import (
	"fmt"
	"io"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/scheme"
)

// matchNamespace puts the URL's namespace into an object that names none.
func (r *resource) matchNamespace(obj scheme.Object, namespace string) error {
	switch {
	case !r.Namespaced:
		obj.SetNamespace("")
	case obj.GetNamespace() == "":
		obj.SetNamespace(namespace)
	case obj.GetNamespace() != namespace:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// newborn fills in the metadata that the server gives an object at birth.
func (a *API) newborn(obj scheme.Object) error {
	uid, err := uuid.NewRandomFromReader(a.Random)
	if err != nil {
		return fmt.Errorf("draw a UID: %w", err)
	}
	obj.SetUID(types.UID(uid.String()))
	obj.SetCreationTimestamp(metav1.NewTime(a.Now().Truncate(1e9)))
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
	return nil
}

// Generated names end in a few characters that spell no words.
const (
	suffixLetters = "bcdfghjklmnpqrstvwxz2456789"
	suffixLength  = 5
	maxGenerated  = 63
)

// generateName makes a name of a prefix.
func (a *API) generateName(base string) (string, error) {
	random := make([]byte, suffixLength)
	if _, err := io.ReadFull(a.Random, random); err != nil {
		return "", fmt.Errorf("draw a name: %w", err)
	}
	for i, b := range random {
		random[i] = suffixLetters[int(b)%len(suffixLetters)]
	}
	return base[:min(len(base), maxGenerated-suffixLength)] + string(random), nil
}

// carryOver gives new the metadata of old that a client may not change, or
// need not repeat.
func carryOver(new, old scheme.Object) {
	new.SetGeneration(old.GetGeneration())
	new.SetSelfLink("")
	if new.GetUID() == "" {
		new.SetUID(old.GetUID())
	}
	if created := old.GetCreationTimestamp(); !created.IsZero() {
		new.SetCreationTimestamp(created)
	}
	new.SetDeletionTimestamp(old.GetDeletionTimestamp())
	new.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
}

// validateNew checks a new object's metadata and then the rest.
func (r *resource) validateNew(obj scheme.Object) error {
	nameOK := r.ValidateName
	if nameOK == nil {
		nameOK = apivalidation.NameIsDNSSubdomain
	}
	metadata := field.NewPath("metadata")
	errs := apivalidation.ValidateObjectMetaAccessor(obj, r.Namespaced, nameOK, metadata)
	if len(errs) == 0 {
		for _, text := range content.IsPathSegmentName(obj.GetName()) {
			errs = append(errs, field.Invalid(metadata.Child("name"), obj.GetName(), text))
		}
	}
	if r.Validate != nil {
		errs = append(errs, r.Validate(obj, nil)...)
	}
	if len(errs) > 0 {
		return r.invalid(obj.GetName(), errs)
	}
	return nil
}

// validateUpdate checks new's metadata against old's and then the rest, or the
// part of it that the subresource owns.
func (r *resource) validateUpdate(new, old scheme.Object, o writeOptions) error {
	errs := apivalidation.ValidateObjectMetaAccessorUpdate(new, old, field.NewPath("metadata"))
	switch {
	case o.sub != nil && o.sub.View == nil:
		if o.sub.ValidatePart != nil {
			errs = append(errs, o.sub.ValidatePart(new, old)...)
		}
	case r.Validate != nil:
		errs = append(errs, r.Validate(new, old)...)
	}
	if len(errs) > 0 {
		return r.invalid(new.GetName(), errs)
	}
	return nil
}
