package registry

import (
	"context"
	"reflect"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
	"podium/pkg/client/access"
	"podium/pkg/scheme"
)

// Reviews of group authorization.k8s.io: whether a user may do something, and what
// the user of the request may do.

func subjectAccessReviews(k *scheme.Kind, cfg Config) *Kind {
	return Of[*authorizationv1.SubjectAccessReview]{
		Review: func(ctx context.Context, _ Backend, _ *request.User, r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
			errs := append(validateAsked(&r.Spec), validateAttributes(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)...)
			errs = append(errs, validateNoMetadata(&r.ObjectMeta)...)
			if len(errs) > 0 {
				return nil, apierrors.NewInvalid(k.GroupVersionKind.GroupKind(), "", errs)
			}
			r.Status = cfg.decide(ctx, subjectOf(&r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
			return r, nil
		},
	}.Kind(k)
}

func localSubjectAccessReviews(k *scheme.Kind, cfg Config) *Kind {
	return Of[*authorizationv1.LocalSubjectAccessReview]{
		Review: func(ctx context.Context, _ Backend, _ *request.User, r *authorizationv1.LocalSubjectAccessReview) (*authorizationv1.LocalSubjectAccessReview, error) {
			if errs := validateLocalReview(r); len(errs) > 0 {
				return nil, apierrors.NewInvalid(k.GroupVersionKind.GroupKind(), "", errs)
			}
			r.Status = cfg.decide(ctx, subjectOf(&r.Spec), r.Spec.ResourceAttributes, nil)
			return r, nil
		},
	}.Kind(k)
}

func selfSubjectAccessReviews(k *scheme.Kind, cfg Config) *Kind {
	return Of[*authorizationv1.SelfSubjectAccessReview]{
		Review: func(ctx context.Context, _ Backend, user *request.User, r *authorizationv1.SelfSubjectAccessReview) (*authorizationv1.SelfSubjectAccessReview, error) {
			errs := validateAttributes(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
			errs = append(errs, validateNoMetadata(&r.ObjectMeta)...)
			if len(errs) > 0 {
				return nil, apierrors.NewInvalid(k.GroupVersionKind.GroupKind(), "", errs)
			}
			r.Status = cfg.decide(ctx, user, r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
			return r, nil
		},
	}.Kind(k)
}

func selfSubjectRulesReviews(k *scheme.Kind, cfg Config) *Kind {
	return Of[*authorizationv1.SelfSubjectRulesReview]{
		Review: func(_ context.Context, _ Backend, user *request.User, r *authorizationv1.SelfSubjectRulesReview) (*authorizationv1.SelfSubjectRulesReview, error) {
			if r.Spec.Namespace == "" {
				return nil, apierrors.NewBadRequest("no namespace on request")
			}
			r.Status = authorizationv1.SubjectRulesReviewStatus{
				ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}, Incomplete: true,
			}
			if cfg.Access != nil && user != nil {
				r.Status = cfg.Access.Review(user, r.Spec.Namespace)
			}
			return r, nil
		},
	}.Kind(k)
}

// decide authorizes the attributes as if user had sent the request.
func (cfg *Config) decide(ctx context.Context, user *request.User, resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	if cfg.Access == nil || user == nil {
		return authorizationv1.SubjectAccessReviewStatus{EvaluationError: "this server has no authorizer to ask"}
	}
	d, reason := cfg.Access.Authorize(ctx, user, authz.Asked(resource, path))
	return authorizationv1.SubjectAccessReviewStatus{Allowed: d == authz.Allow, Denied: d == authz.Deny, Reason: reason}
}

func subjectOf(s *authorizationv1.SubjectAccessReviewSpec) *request.User {
	return &request.User{Name: s.User, UID: s.UID, Groups: s.Groups, Extra: access.Extra[[]string](s.Extra)}
}

func validateAsked(s *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	if s.User == "" && len(s.Groups) == 0 {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "user"), s.User, "at least one of user or group must be specified")}
	}
	return nil
}

func validateLocalReview(r *authorizationv1.LocalSubjectAccessReview) field.ErrorList {
	spec := field.NewPath("spec")
	errs := append(validateAsked(&r.Spec), validateAttributes(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)...)
	meta := r.ObjectMeta.DeepCopy()
	meta.Namespace = ""
	errs = append(errs, validateNoMetadata(meta)...)
	if a := r.Spec.ResourceAttributes; a != nil && a.Namespace != r.Namespace {
		errs = append(errs, field.Invalid(spec.Child("resourceAttributes", "namespace"), a.Namespace, "must match metadata.namespace"))
	}
	if r.Spec.NonResourceAttributes != nil {
		errs = append(errs, field.Invalid(spec.Child("nonResourceAttributes"), r.Spec.NonResourceAttributes, "disallowed on this kind of request"))
	}
	return errs
}

func validateNoMetadata(m *metav1.ObjectMeta) field.ErrorList {
	meta := m.DeepCopy()
	meta.ManagedFields = nil
	if reflect.DeepEqual(meta, &metav1.ObjectMeta{}) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), m, "must be empty")}
}

// validateAttributes checks that exactly one of resource and path is set, and
// validates it.
func validateAttributes(resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) field.ErrorList {
	spec := field.NewPath("spec")
	switch {
	case resource != nil && path != nil:
		return field.ErrorList{field.Invalid(spec.Child("nonResourceAttributes"), path, "cannot be specified in combination with resourceAttributes")}
	case resource == nil && path == nil:
		return field.ErrorList{field.Invalid(spec.Child("resourceAttributes"), path, "exactly one of nonResourceAttributes or resourceAttributes must be specified")}
	case resource == nil:
		return nil
	}
	at := spec.Child("resourceAttributes")
	var errs field.ErrorList
	if s := resource.FieldSelector; s != nil {
		errs = append(errs, validateOneSelector(s.RawSelector, len(s.Requirements), at.Child("fieldSelector"))...)
		for i, r := range s.Requirements {
			errs = append(errs, validateFieldRequirement(&r, at.Child("fieldSelector", "requirements").Index(i))...)
		}
	}
	if s := resource.LabelSelector; s != nil {
		errs = append(errs, validateOneSelector(s.RawSelector, len(s.Requirements), at.Child("labelSelector"))...)
	}
	return errs
}

func validateOneSelector(raw string, requirements int, path *field.Path) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(path.Child("rawSelector"), raw, "may not specified at the same time as requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(path.Child("requirements"), "when "+path.String()+" is specified, requirements or rawSelector is required")}
	}
	return nil
}

func validateFieldRequirement(r *metav1.FieldSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.Key == "" {
		errs = append(errs, field.Required(path.Child("key"), "must be specified"))
	}
	switch r.Operator {
	case metav1.FieldSelectorOpIn, metav1.FieldSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(path.Child("values"), "must be specified when `operator` is 'In' or 'NotIn'"))
		}
	case metav1.FieldSelectorOpExists, metav1.FieldSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Forbidden(path.Child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	return errs
}
