// Package discovery serves the API discovery documents: groups, versions, resources
// and their verbs, in the plain and the aggregated form.
package discovery
