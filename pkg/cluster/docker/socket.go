package docker

import (
	"fmt"
	"strings"
)

// The engine's socket: where it usually is on the engine's machine, and where
// control planes see it (pkg/cloud/docker looks there).
const (
	usualSocket = "/var/run/docker.sock"
	nodeSocket  = "/run/podium/docker.sock"
)

// socketOf is where the engine's socket is, on its own machine: where podium
// found the engine, if by a socket, else the usual place.
func socketOf(endpoint string) (string, error) {
	path, local := strings.CutPrefix(endpoint, "unix://")
	if !local {
		return usualSocket, nil
	}
	if strings.ContainsAny(path, ",\"\n") {
		return "", fmt.Errorf("the engine's socket %q cannot be mounted into a container\n    → move it, or leave cloud-controller-manager out: cloudProvider: none in --config", path)
	}
	return path, nil
}
