// Package registry holds what is special about each kind the API serves, one
// file a resource: defaults, preparation, validation, table columns,
// subresources.
package registry
