// Package authz decides what users may do. It defines the Authorizer interface
// and a chain of authorizers, in which the first one to allow or deny decides.
// Its subpackages are the authorizers.
package authz
