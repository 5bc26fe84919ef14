// Package probes runs liveness, readiness and startup probes: commands, HTTP
// requests, TCP connections and gRPC health checks, with the periods and thresholds
// of the pod's spec. Each probe has a goroutine that ends with its container.
package probes
