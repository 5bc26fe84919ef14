// Package machine makes a machine that runs systemd a node of a cluster, and
// undoes it: podium init on the first one, join on the others (as workers or
// as further control planes, each a member of etcd), reset on each,
// and what an operator does in between.
//
// Everything on disk is below /etc/podium (configuration, certificates,
// kubeconfigs) and /var/lib/podium (etcd's data). A daemon is a systemd unit
// of its name, which runs once its file in /etc/podium is there. Every step
// looks at what is there and does what is missing, so that a run that failed
// is simply run again.
package machine
