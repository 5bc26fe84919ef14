// Package certificates holds three admission plugins for certificate signing
// requests. CertificateApproval and CertificateSigning require that the user has
// the permission to approve or sign for the request's signer (verb approve or
// sign on signers of certificates.k8s.io, by the signer's name or by its domain
// and /*). CertificateSubjectRestriction refuses requests for certificates that
// would make their holder an administrator.
package certificates

import (
	"bytes"
	"context"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
	"podium/pkg/client/csr"
)

// Approval returns the plugin CertificateApproval.
func Approval(h admission.Host) admission.Plugin {
	return of(admission.Update, "approval", func(ctx context.Context, a *admission.Attributes) error {
		signer := a.Old.(*certificatesv1.CertificateSigningRequest).Spec.SignerName
		if !allowed(ctx, h.Authorizer, a.User, "approve", signer) {
			return admission.Forbidden(a, "user not permitted to approve requests with signerName %q", signer)
		}
		return nil
	})
}

// Signing returns the plugin CertificateSigning.
func Signing(h admission.Host) admission.Plugin {
	return of(admission.Update, "status", func(ctx context.Context, a *admission.Attributes) error {
		old, next := a.Old.(*certificatesv1.CertificateSigningRequest), a.Object.(*certificatesv1.CertificateSigningRequest)
		if bytes.Equal(old.Status.Certificate, next.Status.Certificate) && apiequality.Semantic.DeepEqual(old.Status.Conditions, next.Status.Conditions) {
			return nil
		}
		if !allowed(ctx, h.Authorizer, a.User, "sign", old.Spec.SignerName) {
			return admission.Forbidden(a, "user not permitted to sign requests with signerName %q", old.Spec.SignerName)
		}
		return nil
	})
}

// SubjectRestriction returns the plugin CertificateSubjectRestriction.
func SubjectRestriction(admission.Host) admission.Plugin {
	return of(admission.Create, "", func(_ context.Context, a *admission.Attributes) error {
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
	})
}

// of returns a plugin that validates one operation of certificate signing
// requests. The server itself needs no permission.
func of(op admission.Operation, subresource string, validate admission.Func) admission.Plugin {
	return admission.Plugin{
		Operations:  []admission.Operation{op},
		Resource:    schema.GroupResource{Group: certificatesv1.GroupName, Resource: "certificatesigningrequests"},
		Subresource: subresource,
		Validate: func(ctx context.Context, a *admission.Attributes) error {
			if a.User == nil {
				return nil
			}
			return validate(ctx, a)
		},
	}
}

// allowed reports whether user may do verb for the signer, by its name or by its
// whole domain.
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
