// Package traffic is what clients do while a cluster loses a machine or is
// upgraded: one writes to the API, one asks a Service. It counts what they
// notice.
package traffic
