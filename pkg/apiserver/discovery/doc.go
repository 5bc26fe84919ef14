// Package discovery tells clients what is served: groups, versions, resources
// and their verbs, in the plain and the aggregated form.
package discovery
