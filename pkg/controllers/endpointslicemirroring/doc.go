// Package endpointslicemirroring keeps EndpointSlices of the Endpoints that
// people and programs write by hand for Services without a selector: who reads
// slices only, as kube-proxy and the name servers do, finds them there.
package endpointslicemirroring
