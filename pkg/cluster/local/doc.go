// Package local runs a one-node cluster as processes of this machine, under
// one folder: its own containerd, then the daemons, each with a log file and a
// pid file. Create converges (what runs and fits is left alone, what is
// missing is started), Delete leaves nothing behind.
package local
