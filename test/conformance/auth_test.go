package conformance

// auth are the rows of the area auth.
func auth() []testcase {
	return []testcase{
		{id: "csr-api", test: csrAPI},
		{id: "oidc-issuer-discovery", test: oidcDiscovery},
		{id: "serviceaccount-automount-optout", test: automountOptOut},
		{id: "serviceaccount-token-review", test: tokenReview},
		{id: "podcertificaterequest-api", test: podCertificates},
		{id: "root-ca-configmap", test: rootCA},
		{id: "serviceaccount-token-files", test: tokenFiles},
		{id: "serviceaccount-token-projected", test: tokenProjected},
		{id: "serviceaccount-lifecycle", test: accountLifecycle},
		{id: "serviceaccount-update", test: accountUpdate},
		{id: "subject-access-reviews", test: accessReviews},
	}
}
