// Package multinode tests clusters of several nodes as in CI: created, broken, repaired and
// deleted by `podium cluster`, on a Docker engine.
package multinode
