// Package access is for servers that are not the apiserver and leave to it who
// may do what: a bearer token is shown to it (TokenReview), a permission asked
// of it (SubjectAccessReview), and the answers are remembered for a while. A
// client certificate is known without it.
package access
