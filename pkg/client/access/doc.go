// Package access authenticates and authorizes requests to servers other than
// kube-apiserver: it sends bearer tokens to the API server as TokenReviews and
// permissions as SubjectAccessReviews, and caches the answers. Client certificates
// are verified locally.
package access
