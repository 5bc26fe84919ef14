package registry

import (
	"context"
	"fmt"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
	"podium/pkg/fieldcheck"
	"podium/pkg/scheme"
)

// podCertificateRequests ask a signer for a certificate of a pod. The signer writes
// the status, once.
func podCertificateRequests(k *scheme.Kind, cfg Config) *Kind {
	life := lifecycle[*certificatesv1.PodCertificateRequest, certificatesv1.PodCertificateRequestSpec, certificatesv1.PodCertificateRequestStatus]{
		parts: func(r *certificatesv1.PodCertificateRequest) (*certificatesv1.PodCertificateRequestSpec, *certificatesv1.PodCertificateRequestStatus) {
			return &r.Spec, &r.Status
		},
		uncounted: true,
	}
	status := life.status(k, nil, func(new, old *certificatesv1.PodCertificateRequest) field.ErrorList {
		return validatePodCertificateStatus(new, old, cfg.Now())
	})
	prepare := status.PreparePart
	status.PreparePart = func(ctx context.Context, new, old scheme.Object) error {
		if err := prepare(ctx, new, old); err != nil {
			return err
		}
		return cfg.maySign(ctx, new.(*certificatesv1.PodCertificateRequest), old.(*certificatesv1.PodCertificateRequest))
	}
	doc := certificatesv1.PodCertificateRequestSpec{}.SwaggerDoc()
	return Of[*certificatesv1.PodCertificateRequest]{
		Default: func(r *certificatesv1.PodCertificateRequest) {
			if r.Spec.MaxExpirationSeconds == nil {
				r.Spec.MaxExpirationSeconds = new(int32(maxKubernetesCertificate / time.Second))
			}
		},
		Prepare: life.prepare,
		Validate: func(new, old *certificatesv1.PodCertificateRequest) field.ErrorList {
			if old != nil {
				return apivalidation.ValidateImmutableField(new.Spec, old.Spec, field.NewPath("spec"))
			}
			return validatePodCertificateSpec(&new.Spec, field.NewPath("spec"))
		},
		Columns: append(columns(column("PodName", doc["podName"]), column("ServiceAccountName", doc["serviceAccountName"]),
			column("NodeName", doc["nodeName"]), column("SignerName", doc["signerName"]),
			column("State", "Is the request Pending, Issued, Denied, or Failed?")),
			wide(column("UnverifiedUserAnnotations", doc["unverifiedUserAnnotations"]))...),
		Row: podCertificateRow,
		Fields: func(r *certificatesv1.PodCertificateRequest) fields.Set {
			return fields.Set{"spec.signerName": r.Spec.SignerName, "spec.podName": r.Spec.PodName, "spec.nodeName": string(r.Spec.NodeName)}
		},
		NoController: true,
		Subresources: []*Subresource{status},
	}.Kind(k)
}

// maySign returns an error unless the user of ctx may sign for the signer of the
// request, or the status does not change. The server itself needs no permission.
func (cfg *Config) maySign(ctx context.Context, new, old *certificatesv1.PodCertificateRequest) error {
	user := request.UserFrom(ctx)
	if user == nil || cfg.Access == nil || apiequality.Semantic.DeepEqual(new.Status, old.Status) {
		return nil
	}
	signer := old.Spec.SignerName
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		d, _ := cfg.Access.Authorize(ctx, user, &request.Info{
			IsResource: true, Verb: "sign", Group: certificatesv1.GroupName, Version: "*", Resource: "signers", Name: name,
		})
		if d == authz.Allow {
			return nil
		}
	}
	return apierrors.NewInvalid(certificatesv1.SchemeGroupVersion.WithKind("PodCertificateRequest").GroupKind(), old.Name, field.ErrorList{
		field.Forbidden(field.NewPath("spec", "signerName"), fmt.Sprintf("User %q is not permitted to \"sign\" for signer %q", user.Name, signer)),
	})
}

// The lifetimes that a request may ask for.
const (
	minPodCertificate        = time.Hour
	maxPodCertificate        = 91 * 24 * time.Hour
	maxKubernetesCertificate = 24 * time.Hour // of signers below kubernetes.io
)

// maxUID is the maximum length of a UID in bytes.
const maxUID = 128

func validatePodCertificateSpec(spec *certificatesv1.PodCertificateRequestSpec, path *field.Path) field.ErrorList {
	errs := validateSignerName(spec.SignerName, path.Child("signerName"))
	if all := spec.UnverifiedUserAnnotations; all != nil {
		at := path.Child("unverifiedUserAnnotations")
		for key := range all {
			errs = append(errs, validation.IsDomainPrefixedKey(at, strings.ToLower(key))...)
		}
		if apivalidation.ValidateAnnotationsSize(all) != nil {
			errs = append(errs, field.TooLong(at, "", apivalidation.TotalAnnotationSizeLimitB))
		}
	}
	for _, ref := range []struct {
		kind, name string
		uid        types.UID
		texts      []string
	}{
		{"pod", spec.PodName, spec.PodUID, apivalidation.NameIsDNSSubdomain(spec.PodName, false)},
		{"serviceAccount", spec.ServiceAccountName, spec.ServiceAccountUID, apivalidation.ValidateServiceAccountName(spec.ServiceAccountName, false)},
		{"node", string(spec.NodeName), spec.NodeUID, apivalidation.NameIsDNSSubdomain(string(spec.NodeName), false)},
	} {
		errs = append(errs, fieldcheck.Invalid(ref.texts, path.Child(ref.kind+"Name"), ref.name)...)
		switch at := path.Child(ref.kind + "UID"); {
		case ref.uid == "":
			errs = append(errs, field.Invalid(at, ref.uid, "must not be empty"))
		case len(ref.uid) > maxUID:
			errs = append(errs, field.TooLong(at, ref.uid, maxUID))
		}
	}
	most := maxPodCertificate
	if domain, _, _ := strings.Cut(spec.SignerName, "/"); domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") {
		most = maxKubernetesCertificate
	}
	if s := *spec.MaxExpirationSeconds; s < int32(minPodCertificate/time.Second) || s > int32(most/time.Second) {
		errs = append(errs, field.Invalid(path.Child("maxExpirationSeconds"), s, fmt.Sprintf("must be in the range [%d, %d]", minPodCertificate/time.Second, most/time.Second)))
	}
	return append(errs, validateStub(spec.StubPKCS10Request, path.Child("stubPKCS10Request"))...)
}

func podCertificateRow(r *certificatesv1.PodCertificateRequest, _ time.Time) []any {
	state := "Pending"
	for _, c := range r.Status.Conditions {
		state = c.Type
	}
	return []any{r.Name, r.Spec.PodName, r.Spec.ServiceAccountName, string(r.Spec.NodeName), r.Spec.SignerName, state,
		labels.FormatLabels(r.Spec.UnverifiedUserAnnotations)}
}
