// Command kube-controller-manager runs the controllers, which reconcile the
// cluster's state with the desired state in the API.
package main

import (
	"os"
	_ "time/tzdata" // CronJobs may name any time zone, on every machine

	"podium/pkg/controllers"
	"podium/pkg/daemon"
)

func main() { os.Exit(daemon.Main(controllers.NewCommand())) }
