// Package machine makes a machine that runs systemd a node of a cluster, and
// undoes it. podium init sets up the first machine, podium join further ones
// (as workers, or as control planes with a member of etcd each), and podium
// reset removes a machine's configuration. The package also implements the
// commands for operating such a cluster: backup, restore, upgrade,
// certificates, tokens and etcd members.
//
// Files are below /etc/podium (configuration, certificates, kubeconfigs) and
// /var/lib/podium (etcd's data). Each daemon is a systemd unit of the same
// name, which starts once its file exists in /etc/podium. Every step inspects
// the machine and does only what is missing, so that a failed command can be
// repeated.
package machine
