// Package endpoints keeps each Service's Endpoints object, the older and
// smaller form of its EndpointSlices, for clients that still read it.
package endpoints
