// Command cluster-dns is the cluster's DNS server.
package main

import (
	"os"

	"podium/pkg/daemon"
	"podium/pkg/dns"
)

func main() { os.Exit(daemon.Main(dns.NewCommand())) }
