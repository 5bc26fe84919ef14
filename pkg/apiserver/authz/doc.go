// Package authz says what a user may do: a chain of authorizers, of which the
// first with an opinion decides. Its subpackages are the authorizers.
package authz
