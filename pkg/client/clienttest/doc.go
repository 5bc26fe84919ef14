// Package clienttest is an API in memory for tests of what stands on
// pkg/client: it keeps objects, counts revisions and serves watches, without a
// network, a goroutine of its own, validation or defaults. It lives in a
// testing/synctest bubble and can lose requests and answers on demand.
package clienttest
