package certificates

import (
	"bytes"
	"context"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
	"podium/pkg/client/csr"
)

// Approval is CertificateApproval.
func Approval(may authz.Authorizer) admission.Func {
	return func(ctx context.Context, a *admission.Attributes) error {
		if !of(a, admission.Update, "approval") {
			return nil
		}
		signer := a.Old.(*certificatesv1.CertificateSigningRequest).Spec.SignerName
		if !allowed(ctx, may, a.User, "approve", signer) {
			return admission.Forbidden(a, "user not permitted to approve requests with signerName %q", signer)
		}
		return nil
	}
}

// Signing is CertificateSigning.
func Signing(may authz.Authorizer) admission.Func {
	return func(ctx context.Context, a *admission.Attributes) error {
		if !of(a, admission.Update, "status") {
			return nil
		}
		old, next := a.Old.(*certificatesv1.CertificateSigningRequest), a.Object.(*certificatesv1.CertificateSigningRequest)
		if bytes.Equal(old.Status.Certificate, next.Status.Certificate) && apiequality.Semantic.DeepEqual(old.Status.Conditions, next.Status.Conditions) {
			return nil
		}
		if !allowed(ctx, may, a.User, "sign", old.Spec.SignerName) {
			return admission.Forbidden(a, "user not permitted to sign requests with signerName %q", old.Spec.SignerName)
		}
		return nil
	}
}

// SubjectRestriction is CertificateSubjectRestriction.
func SubjectRestriction(_ context.Context, a *admission.Attributes) error {
	if !of(a, admission.Create, "") {
		return nil
	}
	c := a.Object.(*certificatesv1.CertificateSigningRequest)
	if c.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return nil
	}
	parsed, err := csr.Parse(c.Spec.Request)
	if err != nil {
		return admission.Forbidden(a, "failed to parse CSR: %v", err)
	}
	if slices.Contains(parsed.Subject.Organization, authn.Masters) {
		return admission.Forbidden(a, "use of %s signer with %s group is not allowed", c.Spec.SignerName, authn.Masters)
	}
	return nil
}

// of says whether a write is this one of a certificate signing request, and
// somebody's: the server itself needs no permission.
func of(a *admission.Attributes, op admission.Operation, subresource string) bool {
	return a.User != nil && a.Operation == op && a.Subresource == subresource &&
		a.Kind.Group == certificatesv1.GroupName && a.Kind.Resource == "certificatesigningrequests"
}

// allowed asks for the signer's name, then for all of its domain.
func allowed(ctx context.Context, may authz.Authorizer, user *request.User, verb, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		info := request.Info{IsResource: true, Verb: verb, Group: certificatesv1.GroupName, Version: "*", Resource: "signers", Name: name}
		if d, _ := may.Authorize(ctx, user, &info); d == authz.Allow {
			return true
		}
	}
	return false
}
