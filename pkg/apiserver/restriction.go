package apiserver

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/certificates"
	"podium/pkg/apiserver/admission/noderestriction"
	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

// restricted is the chain with the rules about who may write what that go
// beyond permissions: of nodes, and of certificate signing requests. They come
// first: nothing is worked on that is refused.
func (s *Server) restricted(chain admission.Chain) admission.Chain {
	// The authorizer and the API are made after the rules: they are there once requests come.
	may := authz.Func(func(ctx context.Context, user *request.User, info *request.Info) (authz.Decision, string) {
		return s.cfg.Authorizer.Authorize(ctx, user, info)
	})
	var rules []admission.Func
	for _, rule := range []struct {
		plugin registry.Plugin
		check  admission.Func
	}{
		{registry.NodeRestriction, noderestriction.New(objects{s}, may)},
		{registry.CertificateApproval, certificates.Approval(may)},
		{registry.CertificateSigning, certificates.Signing(may)},
		{registry.CertificateSubjectRestriction, certificates.SubjectRestriction},
	} {
		if !s.cfg.Disabled.Has(rule.plugin) {
			rules = append(rules, rule.check)
		}
	}
	chain.Mutate = append(rules, slices.Clone(chain.Mutate)...)
	return chain
}

// objects are the server's, found while requests are served.
type objects struct{ s *Server }

func (o objects) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (scheme.Object, error) {
	return o.s.api.Get(ctx, gvr, namespace, name)
}

func (o objects) List(ctx context.Context, gvr schema.GroupVersionResource, namespace string) ([]scheme.Object, error) {
	return o.s.api.List(ctx, gvr, namespace)
}
