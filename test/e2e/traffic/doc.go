// Package traffic simulates clients while a cluster loses a machine or is upgraded: one writes to
// the API, one sends requests to a Service. It measures the effects on them.
package traffic
