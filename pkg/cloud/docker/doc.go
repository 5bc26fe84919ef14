// Package docker is the provider for clusters whose nodes are containers of a Docker engine:
// it queries the engine over its socket with a few plain HTTP calls (engine.go). A node
// container is identified by its labels and its name, which is the node's name.
//
// A process that can write to the engine's socket is root on its machine: the socket is
// mounted into control planes only, and such clusters are for tests and CI.
package docker
