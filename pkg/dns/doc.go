// Package dns implements cluster-dns, the cluster's name server. It answers queries
// for Services and pods from the API's objects, according to the Kubernetes DNS
// specification 1.1, and forwards other queries to other name servers, with a bounded
// cache.
package dns
