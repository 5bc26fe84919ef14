package registry

import (
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/fieldcheck"
	"podium/pkg/scheme"
)

// maxIngressController is the maximum length of spec.controller in bytes.
const maxIngressController = 250

func ingressClasses(k *scheme.Kind, _ Config) *Kind {
	return Of[*networkingv1.IngressClass]{
		Default: func(c *networkingv1.IngressClass) {
			if p := c.Spec.Parameters; p != nil && p.Scope == nil {
				p.Scope = new(networkingv1.IngressClassParametersReferenceScopeCluster)
			}
		},
		Prepare:  counted(func(c *networkingv1.IngressClass) *networkingv1.IngressClassSpec { return &c.Spec }),
		Validate: validateIngressClass,
		Columns: columns(
			column("Controller", "Controller that is responsible for handling this class"),
			column("Parameters", "A reference to a resource with additional parameters"),
			ageColumn()),
		Row: func(c *networkingv1.IngressClass, now time.Time) []any {
			parameters := "<none>"
			if p := c.Spec.Parameters; p != nil {
				parameters = p.Kind
				if p.APIGroup != nil {
					parameters += "." + *p.APIGroup
				}
				parameters += "/" + p.Name
			}
			return []any{c.Name, c.Spec.Controller, parameters, age(c.CreationTimestamp, now)}
		},
		AllowUnconditionalUpdate: true,
		NoController:             true,
	}.Kind(k)
}

func validateIngressClass(new, old *networkingv1.IngressClass) field.ErrorList {
	path := field.NewPath("spec")
	controller := path.Child("controller")
	var errs field.ErrorList
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(new.Spec.Controller, old.Spec.Controller, controller)...)
	}
	if c := new.Spec.Controller; c == "" {
		errs = append(errs, field.Required(controller, ""))
	} else {
		if len(c) > maxIngressController {
			errs = append(errs, field.TooLong(controller, "", maxIngressController))
		}
		errs = append(errs, validation.IsDomainPrefixedPath(controller, c)...)
	}
	return append(errs, validateIngressParameters(new.Spec.Parameters, path.Child("parameters"))...)
}

func validateIngressParameters(p *networkingv1.IngressClassParametersReference, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := validateReference(p.APIGroup, p.Kind, p.Name, path)
	namespace := path.Child("namespace")
	switch {
	case p.Scope == nil:
		errs = append(errs, field.Required(path.Child("scope"), ""))
	case *p.Scope == networkingv1.IngressClassParametersReferenceScopeNamespace && p.Namespace == nil:
		errs = append(errs, field.Required(namespace, "`parameters.scope` is set to 'Namespace'"))
	case *p.Scope == networkingv1.IngressClassParametersReferenceScopeNamespace:
		errs = append(errs, fieldcheck.Invalid(apivalidation.ValidateNamespaceName(*p.Namespace, false), namespace, *p.Namespace)...)
	case *p.Scope != networkingv1.IngressClassParametersReferenceScopeCluster:
		errs = append(errs, field.NotSupported(path.Child("scope"), *p.Scope,
			[]string{networkingv1.IngressClassParametersReferenceScopeCluster, networkingv1.IngressClassParametersReferenceScopeNamespace}))
	case p.Namespace != nil:
		errs = append(errs, field.Forbidden(namespace, "`parameters.scope` is set to 'Cluster'"))
	}
	return errs
}
