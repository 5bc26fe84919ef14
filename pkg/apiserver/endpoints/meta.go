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

// matchNamespace sets the namespace of the URL on an object without a namespace,
// and returns a 400 if the two differ. It clears the namespace of cluster-scoped
// objects.
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

// clearSystemMetadata clears what only the server may set in a new object.
func clearSystemMetadata(obj scheme.Object) {
	obj.SetUID("")
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
}

// setSystemMetadata sets the system metadata of a new object: UID and creation timestamp. It
// clears the rest again, which a mutating plugin may have set.
func (a *API) setSystemMetadata(obj scheme.Object) error {
	clearSystemMetadata(obj)
	uid, err := uuid.NewRandomFromReader(a.Random)
	if err != nil {
		return fmt.Errorf("draw a UID: %w", err)
	}
	obj.SetUID(types.UID(uid.String()))
	obj.SetCreationTimestamp(metav1.NewTime(a.Now().Truncate(1e9)))
	return nil
}

// Generated names end in random characters without vowels, so that they spell no
// words.
const (
	suffixLetters = "bcdfghjklmnpqrstvwxz2456789"
	suffixLength  = 5
	maxGenerated  = 63
)

// generateName appends a random suffix to base, which it cuts to fit.
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

// carryOver copies the metadata that a client may not change, or may omit, from old
// to new.
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

// validateNew validates the metadata of a new object, the object itself and what
// the requested version adds.
func (r *resource) validateNew(obj scheme.Object, o writeOptions) error {
	nameOK := o.rules(r).ValidateName
	if nameOK == nil {
		nameOK = apivalidation.NameIsDNSSubdomain
	}
	metadata := field.NewPath("metadata")
	errs := apivalidation.ValidateObjectMetaAccessor(metaOf(obj), r.Namespaced, nameOK, metadata)
	if len(errs) == 0 {
		for _, text := range content.IsPathSegmentName(obj.GetName()) {
			errs = append(errs, field.Invalid(metadata.Child("name"), obj.GetName(), text))
		}
	}
	if validate := o.rules(r).Validate; validate != nil {
		errs = append(errs, validate(obj, nil)...)
	}
	errs = append(errs, o.validateVersion(obj, nil)...)
	if len(errs) > 0 {
		return r.invalid(obj.GetName(), errs)
	}
	return nil
}

// validateVersion applies the validation that only the version of the request
// requires.
func (o writeOptions) validateVersion(new, old scheme.Object) field.ErrorList {
	if o.in == nil || o.in.served.Validate == nil {
		return nil
	}
	return o.in.served.Validate(new, old)
}

// validateUpdate validates the metadata of new against old, and the object itself,
// or only the part that the subresource owns.
func (r *resource) validateUpdate(new, old scheme.Object, o writeOptions) error {
	errs := apivalidation.ValidateObjectMetaAccessorUpdate(metaOf(new), metaOf(old), field.NewPath("metadata"))
	switch {
	case o.sub != nil && o.sub.View == nil:
		if o.sub.ValidatePart != nil {
			errs = append(errs, o.sub.ValidatePart(new, old)...)
		}
	case o.rules(r).Validate != nil:
		errs = append(errs, o.rules(r).Validate(new, old)...)
	}
	errs = append(errs, o.validateVersion(new, old)...)
	if len(errs) > 0 {
		return r.invalid(new.GetName(), errs)
	}
	return nil
}
