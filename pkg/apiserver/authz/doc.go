// Package authz says what a user may do: a chain of authorizers, of which the
// first with an opinion decides, and the rules that hold in every cluster.
package authz
