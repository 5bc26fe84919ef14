package registry

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"podium/pkg/fieldcheck"
	"podium/pkg/scheme"
)

// apiServices returns the kind APIService, which says what serves a group version:
// this server, or a Service. Package aggregation acts on it.
func apiServices(k *scheme.Kind, _ Config) *Kind {
	return Of[*apiregistrationv1.APIService]{
		Default: func(s *apiregistrationv1.APIService) {
			if s.Spec.Service != nil {
				apiregistrationv1.SetDefaults_ServiceReference(s.Spec.Service)
			}
		},
		Prepare:      prepareAPIService,
		Validate:     func(new, _ *apiregistrationv1.APIService) field.ErrorList { return validateAPIService(new) },
		ValidateName: path.ValidatePathSegmentName,
		Columns: columns(
			column("Service", "The reference to the service that hosts this API endpoint."),
			column("Available", "Whether this service is available."),
			ageColumn(),
		),
		Row: apiServiceRow,
		Subresources: []*Subresource{part(k, "status", func(new, old *apiregistrationv1.APIService) {
			new.Spec, new.Labels, new.Annotations = old.Spec, old.Labels, old.Annotations
			new.Finalizers, new.OwnerReferences = old.Finalizers, old.OwnerReferences
		}, func(new, _ *apiregistrationv1.APIService) field.ErrorList { return validateAPIServiceStatus(new) })},
	}.Kind(k)
}

// prepareAPIService keeps the status. What this server serves itself is available from
// the start.
func prepareAPIService(_ context.Context, _ Backend, new, old *apiregistrationv1.APIService) error {
	if old != nil {
		new.Status = old.Status
		return nil
	}
	new.Status = apiregistrationv1.APIServiceStatus{}
	if new.Spec.Service == nil {
		apiregistration.SetAPIServiceCondition(new, apiregistration.NewLocalAvailableAPIServiceCondition())
	}
	return nil
}

func validateAPIService(s *apiregistrationv1.APIService) field.ErrorList {
	var errs field.ErrorList
	spec, at := &s.Spec, field.NewPath("spec")
	if want := spec.Version + "." + spec.Group; s.Name != want && len(path.IsValidPathSegmentName(s.Name)) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), s.Name, fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", want)))
	}
	switch {
	case spec.Group != "":
		errs = append(errs, fieldcheck.Invalid(validation.IsDNS1123Subdomain(spec.Group), at.Child("group"), spec.Group)...)
	case spec.Version != "v1":
		errs = append(errs, field.Required(at.Child("group"), "only v1 may have an empty group and it better be legacy kube"))
	}
	errs = append(errs, fieldcheck.Invalid(validation.IsDNS1035Label(spec.Version), at.Child("version"), spec.Version)...)
	if n := spec.GroupPriorityMinimum; n <= 0 || n > 20000 {
		errs = append(errs, field.Invalid(at.Child("groupPriorityMinimum"), n, "must be positive and less than 20000"))
	}
	if n := spec.VersionPriority; n <= 0 || n > 1000 {
		errs = append(errs, field.Invalid(at.Child("versionPriority"), n, "must be positive and less than 1000"))
	}
	if spec.Service == nil {
		return append(errs, validateLocalAPIService(spec, at)...)
	}
	return append(errs, validateServiceReference(spec, at)...)
}

// validateLocalAPIService refuses what says how to reach a Service.
func validateLocalAPIService(spec *apiregistrationv1.APIServiceSpec, at *field.Path) (errs field.ErrorList) {
	if len(spec.CABundle) > 0 {
		errs = append(errs, field.Invalid(at.Child("caBundle"), fmt.Sprintf("%d bytes", len(spec.CABundle)), "local APIServices may not have a caBundle"))
	}
	if spec.InsecureSkipTLSVerify {
		errs = append(errs, field.Invalid(at.Child("insecureSkipTLSVerify"), true, "local APIServices may not have insecureSkipTLSVerify"))
	}
	return errs
}

func validateServiceReference(spec *apiregistrationv1.APIServiceSpec, at *field.Path) (errs field.ErrorList) {
	service := at.Child("service")
	if spec.Service.Namespace == "" {
		errs = append(errs, field.Required(service.Child("namespace"), ""))
	}
	if spec.Service.Name == "" {
		errs = append(errs, field.Required(service.Child("name"), ""))
	}
	if port := spec.Service.Port; port != nil {
		if problems := validation.IsValidPortNum(int(*port)); problems != nil {
			errs = append(errs, field.Invalid(service.Child("port"), *port, "port is not valid: "+strings.Join(problems, ", ")))
		}
	}
	if spec.InsecureSkipTLSVerify && len(spec.CABundle) > 0 {
		errs = append(errs, field.Invalid(at.Child("insecureSkipTLSVerify"), true, "may not be true if caBundle is present"))
	}
	return errs
}

func validateAPIServiceStatus(s *apiregistrationv1.APIService) (errs field.ErrorList) {
	at, valid := field.NewPath("status", "conditions"), []apiregistrationv1.ConditionStatus{apiregistrationv1.ConditionTrue, apiregistrationv1.ConditionFalse, apiregistrationv1.ConditionUnknown}
	for i := range s.Status.Conditions {
		if status := s.Status.Conditions[i].Status; !slices.Contains(valid, status) {
			errs = append(errs, field.NotSupported(at.Index(i).Child("status"), status, valid))
		}
	}
	return errs
}

func apiServiceRow(s *apiregistrationv1.APIService, now time.Time) []any {
	service, available := "Local", string(apiregistrationv1.ConditionUnknown)
	if to := s.Spec.Service; to != nil {
		service = to.Namespace + "/" + to.Name
	}
	if c := apiregistration.GetAPIServiceConditionByType(s, apiregistrationv1.Available); c != nil {
		if available = string(c.Status); c.Status != apiregistrationv1.ConditionTrue && c.Reason != "" {
			available = fmt.Sprintf("%s (%s)", c.Status, c.Reason)
		}
	}
	return []any{s.Name, service, available, age(s.CreationTimestamp, now)}
}
