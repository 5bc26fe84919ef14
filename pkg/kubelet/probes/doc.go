// Package probes asks containers how they are: by a command, an HTTP request, a
// connection or the gRPC health protocol, in the rhythm and with the thresholds
// that the pod says. One goroutine a probe; it lives as long as its container.
package probes
