// Command metrics-server serves the CPU and memory usage of nodes and pods.
package main

import (
	"os"

	"podium/pkg/daemon"
	"podium/pkg/metricsserver"
)

func main() { os.Exit(daemon.Main(metricsserver.NewCommand())) }
