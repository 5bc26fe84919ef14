// Package shutdown ends the pods of a node in order of their priority before the
// machine shuts down. It delays the shutdown by an inhibitor lock of systemd-logind.
// https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/
package shutdown
