// Package registry defines what differs between the kinds that the API serves:
// defaults, preparation, validation, table columns and subresources. Each resource
// has its own file.
package registry
