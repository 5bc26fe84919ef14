// Package docker makes clusters whose machines are containers of a Docker
// engine, driven by its command line. A node container is a small VM: systemd
// is its first process, and `podium init` and `podium join` make it a node as
// they do on a machine. Nothing is kept outside the engine: containers,
// volumes and networks carry the cluster's name in a label, by which every
// command finds them. Several clusters live side by side.
package docker
