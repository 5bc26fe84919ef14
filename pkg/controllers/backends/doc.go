// Package backends says which pods stand behind a Service, at which addresses
// and ports: what the endpoints and endpointslice controllers agree on.
package backends
