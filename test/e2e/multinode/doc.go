// Package multinode tests clusters of several nodes as CI has them: made,
// broken, mended and deleted by `podium cluster`, on a Docker engine.
package multinode
