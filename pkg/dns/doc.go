// Package dns is cluster-dns, the cluster's name server: it answers for
// Services and pods out of what the API holds, as the Kubernetes DNS
// specification 1.1 says, and asks other name servers, through a bounded
// cache, for everything else.
package dns
