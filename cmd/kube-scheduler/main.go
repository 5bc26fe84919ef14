// Command kube-scheduler finds a node for each pod that has none.
package main

import (
	"os"

	"podium/pkg/daemon"
	"podium/pkg/scheduler"
)

func main() { os.Exit(daemon.Main(scheduler.NewCommand())) }
