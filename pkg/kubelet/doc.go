// Package kubelet is the node agent: it registers the node, runs the pods that
// are bound to it through a CRI runtime, and reports their status to the API.
//
// Run starts the parts, each in a package below this one:
//
//	cri        the runtime's clients; cri/crifake is one in memory
//	pods       one worker per pod: state machine, status, back-off, admission
//	staticpods pods of manifests on the node, and their mirrors in the API
//	images     pull policy, pull secrets, pulls
//	probes     liveness, readiness and startup probes
//	resources  QoS, cgroups
//	volumes, env, downward   mounts and environment of containers
//	devices, podresources    device plugins, and the API that tells who has their devices
//	node       registration, Lease, node status
//	certificate the kubelet's own certificates, requested and renewed
//	server, stats            logs, exec, attach, port-forward, statistics
//
// All dependencies outside the process come in through Config, so that a hundred
// kubelets can run over crifake in one test process.
package kubelet
