// Package clienttest is an API server in memory for tests of packages that use
// pkg/client: it stores objects, counts revisions and serves watches, without a
// network, goroutines of its own, validation or defaulting. It works in a
// testing/synctest bubble and can drop requests and responses on demand.
package clienttest
