// Package simulation runs a whole cluster in one process and injects faults.
//
// The real API server (two of them, on one memory store), all controllers, the scheduler and,
// for each node, the real kubelet over an in-memory runtime and the real kube-proxy over
// in-memory tables run in one testing/synctest bubble and speak HTTP over in-memory
// connections. Time is virtual: an hour without work takes no time.
//
// A seed determines a plan of faults: requests and responses that are lost, refused or late,
// watches that lag and break, an API server whose watch cache is behind, and any daemon killed
// before or after any of its writes (to the API server, the store or the container runtime) and
// restarted later. In all cases the cluster must reach the same state as without faults, all
// invariants must hold, and then only heartbeats may be written.
//
//	go test ./test/simulation                       8 seeds of two stories, and 1,000 pods on 100 nodes with faults
//	go test ./test/simulation -run Seeds -seeds 200  more seeds
//	go test ./test/simulation -run Seeds -first 200 -seeds 10 -nodes 100 -pods 1000   of a larger cluster
//	go test ./test/simulation -run Seeds -seed 17    one seed, with every fault it brings
//	go test ./test/simulation -run Seeds -seed 17 -daemon-logs   and the daemons' logs
//
// There are two stories. In that of TestSeeds, deployments, a StatefulSet and a DaemonSet change
// all the time. In that of TestWorkloadSeeds, Jobs, a CronJob, a DaemonSet with nodes that come and
// go, a StatefulSet, a quota, a drain, preemption and claims for devices run side by side, and a
// journal that sees every write of a pod, Job or claim checks the invariant of each.
//
// A seed determines its plan: what happens to the n-th request of a sort that a daemon makes is a
// function of the seed, the daemon, the sort and n only. Which of two goroutines that wake at the
// same instant runs first is the Go scheduler's choice, so a rare failure may need repetitions of
// its seed: -seed 17 -count 20.
package simulation
