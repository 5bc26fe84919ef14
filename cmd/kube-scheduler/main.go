// Command kube-scheduler assigns pods to nodes.
package main

import (
	"os"

	"podium/pkg/daemon"
	"podium/pkg/scheduler"
)

func main() { os.Exit(daemon.Main(scheduler.NewCommand())) }
