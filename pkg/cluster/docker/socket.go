package docker

import (
	"fmt"
	"strings"
)

// The usual path of the engine's socket on its machine, and the path in control
// planes, which pkg/cloud/docker uses.
const (
	usualSocket = "/var/run/docker.sock"
	nodeSocket  = "/run/podium/docker.sock"
)

// socketOf returns the path of the engine's socket on its own machine: that of
// endpoint, or the usual one if podium reaches the engine over the network.
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
