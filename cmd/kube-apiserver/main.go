// Command kube-apiserver serves the Kubernetes API.
package main

import (
	"os"
	_ "time/tzdata" // CronJobs may name any time zone, on every machine

	"golang.org/x/sys/unix"

	"podium/pkg/apiserver"
	"podium/pkg/daemon"
)

func main() {
	unix.Umask(0o077) // the embedded etcd creates snapshots with mode 0666 before the umask
	os.Exit(daemon.Main(apiserver.NewCommand()))
}
