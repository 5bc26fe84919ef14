// Package docker is the provider of clusters whose nodes are containers of a
// Docker engine: it asks the engine, over its socket, what became of them. The
// engine's API is used by a handful of plain HTTP calls (engine.go); a node
// container is known by its labels and its name, which is the node's.
//
// Who can write to the engine's socket is root on its machine: the socket is
// shown to control planes only, and such clusters are for tests and for CI.
package docker
