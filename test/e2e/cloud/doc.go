// Package cloud tests clusters whose machines somebody provides: node containers
// of a Docker engine, which the docker provider knows, and the same machines as
// if nobody did, by the baremetal provider. Services of type LoadBalancer are
// asked from the host, as one who is outside of the cluster.
package cloud
