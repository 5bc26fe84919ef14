// Package docker creates clusters whose machines are containers of a Docker
// engine, which it controls with the docker command. A node container is a
// small VM: systemd is its first process, and `podium init` and `podium join`
// make it a node as they do on a machine. All state is in the engine:
// containers, volumes and networks have the cluster's name in a label, by which
// every command finds them. Several clusters can exist at the same time.
package docker
