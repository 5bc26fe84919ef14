package conformance

import (
	"context"
	"testing"
)

type testcase struct {
	id   string
	test func(t *testing.T, ctx context.Context, namespace string)
}

// auth are the rows of the area auth. Only podcertificaterequest-api is not
// here: the kind came after the version that Podium serves.
func auth() []testcase {
	return []testcase{
		{"csr-api", csrAPI},
		{"oidc-issuer-discovery", oidcDiscovery},
		{"serviceaccount-automount-optout", automountOptOut},
		{"serviceaccount-token-review", tokenReview},
		{"root-ca-configmap", rootCA},
		{"serviceaccount-token-files", tokenFiles},
		{"serviceaccount-token-projected", tokenProjected},
		{"serviceaccount-lifecycle", accountLifecycle},
		{"serviceaccount-update", accountUpdate},
		{"subject-access-reviews", accessReviews},
	}
}

func TestAuth(t *testing.T) {
	for _, tc := range auth() {
		row(t, tc.id, tc.test)
	}
}
