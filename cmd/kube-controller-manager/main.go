// Command kube-controller-manager makes the cluster's state what the API says
// it should be.
package main

import (
	"os"

	"podium/pkg/controllers"
	"podium/pkg/daemon"
)

func main() { os.Exit(daemon.Main(controllers.NewCommand())) }
