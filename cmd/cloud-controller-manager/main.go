// Command cloud-controller-manager keeps the cluster and whoever provides its
// machines in step.
package main

import (
	"os"

	"podium/pkg/cloud/manager"
	"podium/pkg/daemon"
)

func main() { os.Exit(daemon.Main(manager.NewCommand())) }
