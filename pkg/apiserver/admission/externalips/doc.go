// Package externalips is the admission plugin DenyServiceExternalIPs. Without
// it the writer of a Service in any namespace takes over connections to an
// address of his choice on every node (CVE-2020-8554). Upstream's plugin denies
// all new addresses; this one can allow ranges of them, without those that
// nodes, pods, Services and the API server have.
package externalips
