// Package backends determines the pods behind a Service, with their addresses and ports,
// for the controllers of Endpoints and EndpointSlices.
package backends
