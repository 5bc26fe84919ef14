// Package simulation runs a whole cluster in one process and breaks it.
//
// The real apiserver (two of them, on one memory store), all controllers, the
// scheduler and, for each node, the real kubelet over a runtime in memory and
// the real kube-proxy over tables in memory live in one testing/synctest
// bubble and speak HTTP over in-memory connections. Time is virtual: an hour
// without work takes no time.
//
// A seed makes a plan of faults: requests and answers that are lost, refused or
// late, watches that lag and break, an apiserver whose cache is behind, and any
// daemon killed before or after any of its writes (to the apiserver, the store
// or the container runtime) and started again later. Whatever happens, the
// cluster must end in the state that it reaches without faults, all of its
// invariants must hold, and then nobody may write anything but heartbeats.
//
//	go test ./test/simulation                      20 seeds, and 1,000 pods on 100 nodes
//	go test ./test/simulation -run Seeds -seeds 200  more seeds
//	go test ./test/simulation -run Seeds -seed 17    one seed, with every fault it brings
//	go test ./test/simulation -run Seeds -seed 17 -daemon-logs   and what the daemons say
//
// A seed stands for its plan: what happens to the n-th request of a sort that a
// daemon makes is a function of the seed, the daemon, the sort and n, and of
// nothing else. Which of two goroutines that wake at the same instant goes
// first is the Go scheduler's choice, so a rare failure may want its seed
// repeated: -seed 17 -count 20.
package simulation
