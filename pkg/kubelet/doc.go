// Package kubelet is the node's agent: it registers the node, runs the pods
// that are bound to it through a CRI runtime, and tells the API how they are.
//
// Run wires the parts, each a package below this one:
//
//	cri        the runtime's clients; cri/crifake is one in memory
//	pods       a worker a pod: the state machine, statuses, back-off, admission
//	images     pull policy, secrets, pulls
//	probes     liveness, readiness, startup
//	resources  QoS, cgroups
//	volumes, env, downward   what containers mount and see
//	node       registration, Lease, node status
//	certificate the kubelet's own certificates, asked for in time
//	server, stats            logs, exec, attach, port-forward, statistics
//
// Everything outside Go's memory comes in through Config, so that a hundred
// kubelets run in one test process over crifake.
package kubelet
