// Package local runs a one-node cluster as processes of this machine, with all
// files in one directory: its own containerd and the daemons, each with a log
// file and a pid file. Create is idempotent; Delete removes everything.
package local
