// Package cloud tests clusters with a cloud provider: node containers of a Docker engine with
// the docker provider, and the same machines with the baremetal provider. Requests to Services
// of type LoadBalancer come from the host, which is outside of the cluster.
package cloud
