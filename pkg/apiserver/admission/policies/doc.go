// Package policies is the admission plugins ValidatingAdmissionPolicy and
// MutatingAdmissionPolicy: they evaluate the CEL expressions of the policies in
// the cluster, for each binding of a policy and each of its parameters.
// https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
// https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/
package policies
