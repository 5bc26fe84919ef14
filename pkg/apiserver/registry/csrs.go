package registry

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/request"
	"podium/pkg/client/access"
	"podium/pkg/client/csr"
	"podium/pkg/fieldcheck"
	"podium/pkg/scheme"
)

// certificateSigningRequests returns the kind CertificateSigningRequest. Users
// create requests for themselves; an approver writes through the approval
// subresource, a signer through status.
func certificateSigningRequests(k *scheme.Kind, cfg Config) *Kind {
	spec, status := certificatesv1.CertificateSigningRequestSpec{}.SwaggerDoc(), certificatesv1.CertificateSigningRequestStatus{}.SwaggerDoc()
	now := cfg.Now
	if now == nil {
		now = time.Now
	}
	return Of[*certificatesv1.CertificateSigningRequest]{
		Prepare:      prepareCSR,
		Validate:     validateCSR,
		ValidateName: func(string, bool) []string { return nil },
		Columns: columns(ageColumn(), column("SignerName", spec["signerName"]), column("Requestor", spec["username"]),
			column("RequestedDuration", spec["expirationSeconds"]), column("Condition", status["conditions"])),
		Row: csrRow,
		Fields: func(c *certificatesv1.CertificateSigningRequest) fields.Set {
			return fields.Set{"spec.signerName": c.Spec.SignerName}
		},
		AllowUnconditionalUpdate: true,
		Subresources: []*Subresource{
			part(k, "approval", func(new, old *certificatesv1.CertificateSigningRequest) {
				conditions := new.Status.Conditions
				new.Spec, new.Status = old.Spec, *old.Status.DeepCopy()
				new.Status.Conditions = conditions
				stampConditions(new, old, now())
			}, func(new, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
				return validateCSRChange(new, old, csrRights{approve: true})
			}),
			part(k, "status", func(new, old *certificatesv1.CertificateSigningRequest) {
				new.Spec = old.Spec
				stampConditions(new, old, now())
			}, func(new, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
				return validateCSRChange(new, old, csrRights{sign: true})
			}),
		},
	}.Kind(k)
}

// prepareCSR sets the requesting user of a new request, whatever the object
// contains. On update it keeps spec and status.
func prepareCSR(ctx context.Context, _ Backend, new, old *certificatesv1.CertificateSigningRequest) error {
	if old != nil {
		new.Spec, new.Status = old.Spec, old.Status
		return nil
	}
	new.Spec.Username, new.Spec.UID, new.Spec.Groups, new.Spec.Extra = "", "", nil, nil
	if user := request.UserFrom(ctx); user != nil {
		new.Spec.Username, new.Spec.UID, new.Spec.Groups = user.Name, user.UID, slices.Clone(user.Groups)
		new.Spec.Extra = access.Extra[certificatesv1.ExtraValue](user.Extra)
	}
	new.Status = certificatesv1.CertificateSigningRequestStatus{}
	return nil
}

// stampConditions sets the timestamps that a condition omits.
func stampConditions(new, old *certificatesv1.CertificateSigningRequest, now time.Time) {
	at := metav1.NewTime(now)
	for i := range new.Status.Conditions {
		c := &new.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = at
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = at
		for _, o := range old.Status.Conditions {
			if o.Type == c.Type && o.Status == c.Status && !o.LastTransitionTime.IsZero() {
				c.LastTransitionTime = o.LastTransitionTime
				break
			}
		}
	}
}

// minCSRSeconds is the minimum value of expirationSeconds.
const minCSRSeconds = 600

// legacySigner signs anything; version v1 of the API rejects requests for it.
const legacySigner = "kubernetes.io/legacy-unknown"

func validateCSR(new, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	if old != nil {
		return validateCSRChange(new, old, csrRights{})
	}
	path := field.NewPath("spec")
	var errs field.ErrorList
	if err := checkRequest(new.Spec.Request); err != nil {
		errs = append(errs, field.Invalid(path.Child("request"), new.Spec.Request, err.Error()))
	}
	errs = append(errs, validateUsages(new.Spec.Usages, path.Child("usages"))...)
	if signer := path.Child("signerName"); new.Spec.SignerName == legacySigner {
		errs = append(errs, field.Invalid(signer, new.Spec.SignerName, "the legacy signerName is not allowed via this API version"))
	} else {
		errs = append(errs, validateSignerName(new.Spec.SignerName, signer)...)
	}
	if s := new.Spec.ExpirationSeconds; s != nil && *s < minCSRSeconds {
		errs = append(errs, field.Invalid(path.Child("expirationSeconds"), *s, "may not specify a duration less than 600 seconds (10 minutes)"))
	}
	return errs
}

// checkRequest checks that the request is signed with its own key, which proves
// that the requester has the private key.
func checkRequest(text []byte) error {
	parsed, err := csr.Parse(text)
	if err != nil {
		return err
	}
	return parsed.CheckSignature()
}

func keyUsages() []certificatesv1.KeyUsage {
	return []certificatesv1.KeyUsage{
		certificatesv1.UsageSigning, certificatesv1.UsageDigitalSignature, certificatesv1.UsageContentCommitment,
		certificatesv1.UsageKeyEncipherment, certificatesv1.UsageKeyAgreement, certificatesv1.UsageDataEncipherment,
		certificatesv1.UsageCertSign, certificatesv1.UsageCRLSign, certificatesv1.UsageEncipherOnly, certificatesv1.UsageDecipherOnly,
		certificatesv1.UsageAny, certificatesv1.UsageServerAuth, certificatesv1.UsageClientAuth, certificatesv1.UsageCodeSigning,
		certificatesv1.UsageEmailProtection, certificatesv1.UsageSMIME, certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel,
		certificatesv1.UsageIPsecUser, certificatesv1.UsageTimestamping, certificatesv1.UsageOCSPSigning, certificatesv1.UsageMicrosoftSGC,
		certificatesv1.UsageNetscapeSGC,
	}
}

func validateUsages(usages []certificatesv1.KeyUsage, path *field.Path) field.ErrorList {
	if len(usages) == 0 {
		return field.ErrorList{field.Required(path, "usages must be provided")}
	}
	var errs field.ErrorList
	known := keyUsages()
	for i, u := range usages {
		if !slices.Contains(known, u) {
			errs = append(errs, field.NotSupported(path.Index(i), u, known))
		}
		if slices.Contains(usages[:i], u) {
			errs = append(errs, field.Duplicate(path.Index(i), u))
		}
	}
	return errs
}

// maxSignerName is the maximum length: a domain name, a slash and a path.
const maxSignerName = 571

// validateSignerName checks that the name is of the form example.com/name; the name
// may have dots.
func validateSignerName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	domain, rest, ok := strings.Cut(name, "/")
	if !ok || strings.Contains(rest, "/") {
		return field.ErrorList{field.Invalid(path, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	var errs field.ErrorList
	for _, label := range []string{domain, rest} {
		for _, text := range validation.IsDNS1123Subdomain(label) {
			errs = append(errs, field.Invalid(path, name, fmt.Sprintf("validating label %q: %s", label, text)))
		}
	}
	if domain != "" && !strings.Contains(domain, ".") {
		errs = append(errs, field.Invalid(path, name, "should be a domain with at least two segments separated by dots"))
	}
	if len(name) > maxSignerName {
		errs = append(errs, field.TooLong(path, name, maxSignerName))
	}
	return errs
}

// csrRights are the parts of the status that a change may modify.
type csrRights struct {
	approve bool // the conditions Approved and Denied
	sign    bool // the certificate
}

func validateCSRChange(new, old *certificatesv1.CertificateSigningRequest, may csrRights) field.ErrorList {
	conditions := field.NewPath("status", "conditions")
	errs := validateCSRConditions(new.Status.Conditions, conditions)
	for _, t := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed} {
		was, is := conditionsOfType(old, t), conditionsOfType(new, t)
		switch {
		case len(is) < len(was):
			errs = append(errs, field.Forbidden(conditions, fmt.Sprintf("updates may not remove a condition of type %q", t)))
		case !may.approve && t != certificatesv1.CertificateFailed && !apiequality.Semantic.DeepEqual(was, is):
			errs = append(errs, field.Forbidden(conditions, fmt.Sprintf("updates may not add a condition of type %q", t)))
		}
	}
	certificate := field.NewPath("status", "certificate")
	if !bytes.Equal(new.Status.Certificate, old.Status.Certificate) {
		switch {
		case !may.sign:
			errs = append(errs, field.Forbidden(certificate, "updates may not set certificate content"))
		case len(old.Status.Certificate) > 0:
			errs = append(errs, field.Forbidden(certificate, "updates may not modify existing certificate content"))
		}
	}
	if len(new.Status.Certificate) > 0 {
		if _, err := csr.ParseChain(new.Status.Certificate); err != nil {
			errs = append(errs, field.Invalid(certificate, "<certificate data>", err.Error()))
		}
	}
	return errs
}

func conditionsOfType(c *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType) (out []certificatesv1.CertificateSigningRequestCondition) {
	for _, cond := range c.Status.Conditions {
		if cond.Type == t {
			out = append(out, cond)
		}
	}
	return out
}

func validateCSRConditions(list []certificatesv1.CertificateSigningRequestCondition, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[certificatesv1.RequestConditionType]bool{}
	for i, c := range list {
		at := path.Index(i)
		if c.Type == "" {
			errs = append(errs, field.Required(at.Child("type"), ""))
		}
		statuses := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}
		other := certificatesv1.RequestConditionType("")
		switch c.Type {
		case certificatesv1.CertificateApproved:
			statuses, other = statuses[:1], certificatesv1.CertificateDenied
		case certificatesv1.CertificateDenied:
			statuses, other = statuses[:1], certificatesv1.CertificateApproved
		case certificatesv1.CertificateFailed:
			statuses = statuses[:1]
		}
		errs = append(errs, fieldcheck.OneOf(c.Status, at.Child("status"), statuses...)...)
		if other != "" && seen[other] {
			errs = append(errs, field.Invalid(at.Child("type"), c.Type, "Approved and Denied conditions are mutually exclusive"))
		}
		if seen[c.Type] {
			errs = append(errs, field.Duplicate(at.Child("type"), c.Type))
		}
		seen[c.Type] = true
	}
	return errs
}

func csrRow(c *certificatesv1.CertificateSigningRequest, now time.Time) []any {
	asked := "<none>"
	if s := c.Spec.ExpirationSeconds; s != nil {
		asked = duration.HumanDuration(time.Duration(*s) * time.Second)
	}
	return []any{c.Name, age(c.CreationTimestamp, now), orNone(c.Spec.SignerName), orNone(c.Spec.Username), asked, csrState(c)}
}

// csrState returns the printed condition: Pending, Approved or Denied, with
// ",Failed" and ",Issued".
func csrState(c *certificatesv1.CertificateSigningRequest) string {
	has := func(t certificatesv1.RequestConditionType) bool { return len(conditionsOfType(c, t)) > 0 }
	state := "Pending"
	switch {
	case has(certificatesv1.CertificateDenied):
		state = "Denied"
	case has(certificatesv1.CertificateApproved):
		state = "Approved"
	}
	if has(certificatesv1.CertificateFailed) {
		state += ",Failed"
	}
	if len(c.Status.Certificate) > 0 {
		state += ",Issued"
	}
	return state
}
