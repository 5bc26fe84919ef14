// Command cloud-controller-manager keeps nodes, routes and load balancers in
// sync with the cloud provider.
package main

import (
	"os"

	"podium/pkg/cloud/manager"
	"podium/pkg/daemon"
)

func main() { os.Exit(daemon.Main(manager.NewCommand())) }
