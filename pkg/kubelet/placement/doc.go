// Package placement holds the kubelet's managers of what has a place on the machine:
// the topology manager and, below it, the CPU manager and the memory manager. To the
// workers of pods they are one thing that admits pods and says where their containers
// run.
package placement
