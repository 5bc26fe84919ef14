package pods

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"podium/pkg/kubelet/podspec"
	"podium/pkg/kubelet/resources"
)

// admit admits the pod or rejects it for good. It does not check a pod that has
// containers on this node again, so that a restarted kubelet keeps it running.
func (w *worker) admit(ctx context.Context) {
	if w.isRemoved || w.pod.DeletionTimestamp != nil || finalPhase(w.pod.Status.Phase) {
		w.enter(terminating)
		return
	}
	if w.observed.empty() && w.pod.Status.StartTime == nil {
		r := w.m.refuseShutdown()
		if r == nil {
			r = w.m.cfg.Host.refuse(w.pod)
		}
		if r == nil {
			r = w.m.refusePressure(w.pod)
		}
		if r == nil {
			var err error
			if r, err = w.m.refuseUnsupported(ctx, w.pod); err != nil {
				w.log.Warn("get container runtime features failed", "error", err)
				w.again(time.Now().Add(time.Second))
				return
			}
		}
		if r != nil {
			w.reject(r)
			return
		}
	}
	refusal, decided := w.m.admit(w.pod, !w.observed.empty())
	if !decided {
		w.again(time.Now().Add(100 * time.Millisecond))
		return
	}
	if refusal == nil {
		runs := !w.observed.empty() || w.pod.Status.StartTime != nil
		if !runs && w.awaitsDevices() {
			return
		}
		if !w.assigned.placed {
			refusal = w.place(runs)
			w.assigned.placed = refusal == nil
		}
	}
	if refusal == nil {
		if refusal, decided = w.assignDevices(); !decided {
			return // the worker is woken when its devices are allocated
		}
	}
	if refusal == nil {
		if wantsSELinux(w.pod) && !w.m.cfg.Host.SELinux && w.observed.empty() {
			w.event(corev1.EventTypeWarning, "SELinuxNotEnabled", "SELinux is not enabled on the host: seLinuxOptions have no effect")
		}
		if err := w.resizer.grantFirst(); err != nil {
			w.log.Warn("admit pod failed", "error", err)
			w.event(corev1.EventTypeWarning, "FailedToMakePodDataDirectories", "error making pod data directories: "+err.Error())
			w.again(time.Now().Add(5 * time.Second))
			return
		}
		w.enter(starting)
		return
	}
	w.reject(refusal)
}

// reject fails the pod before anything of it was started.
func (w *worker) reject(refusal *refusal) {
	w.verdict = &verdict{phase: corev1.PodFailed, reason: refusal.reason, message: "Pod was rejected: " + refusal.message, refused: true}
	w.log.Warn("pod rejected", "reason", refusal.reason, "message", refusal.message)
	w.event(corev1.EventTypeWarning, refusal.reason, refusal.message)
	w.enter(terminating)
}

// refusal is why a node rejects a pod. The texts are upstream's.
type refusal struct{ reason, message string }

// admit returns why the node cannot run the pod in addition to others; nil: it can.
func admit(pod *corev1.Pod, others []*corev1.Pod, node *corev1.Node) *refusal {
	if os := pod.Spec.OS; os != nil && string(os.Name) != runtime.GOOS {
		return &refusal{"PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"}
	}
	if r := fits(pod, others, node); r != nil {
		return r
	}
	selected, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	switch {
	case err != nil || !selected:
		return &refusal{"NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"}
	case pod.Spec.NodeName != "" && pod.Spec.NodeName != node.Name:
		return &refusal{"NodeName", "Predicate NodeName failed: node(s) didn't match the requested node name"}
	case portsTaken(pod, others):
		return &refusal{"NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"}
	case !tolerates(pod, node):
		return &refusal{"TaintToleration", "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"}
	}
	return nil
}

// fits checks the pod's requests against the allocatable resources that are left.
func fits(pod *corev1.Pod, others []*corev1.Pod, node *corev1.Node) *refusal {
	all := node.Status.Allocatable
	if pods := all.Pods().Value(); int64(len(others)+1) > pods {
		return insufficient(corev1.ResourcePods, 1, int64(len(others)), pods)
	}
	return room(requests(pod), others, all)
}

// requests returns what a pod requests, without the extended resources for which devices of its
// claim stand.
func requests(pod *corev1.Pod) corev1.ResourceList {
	out := resources.Requests(pod)
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		for _, m := range s.RequestMappings {
			delete(out, corev1.ResourceName(m.ResourceName))
		}
	}
	return out
}

// room checks whether wants fits beside the requests of others.
func room(wants corev1.ResourceList, others []*corev1.Pod, all corev1.ResourceList) *refusal {
	used := corev1.ResourceList{}
	for _, o := range others {
		for name, q := range requests(o) {
			sum := used[name]
			sum.Add(q)
			used[name] = sum
		}
	}
	native := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	for _, name := range native {
		want, have := amount(wants, name), amount(all, name)
		if _, counted := all[name]; counted && want > 0 && want > have-amount(used, name) {
			return insufficient(name, want, amount(used, name), have)
		}
	}
	for name := range wants {
		if _, ordinary := all[name]; !ordinary || slices.Contains(native, name) {
			continue
		}
		if want := amount(wants, name); want > amount(all, name)-amount(used, name) {
			return insufficient(name, want, amount(used, name), amount(all, name))
		}
	}
	return nil
}

// amount returns a quantity as an integer: CPU in millicores.
func amount(list corev1.ResourceList, name corev1.ResourceName) int64 {
	q := list[name]
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

func insufficient(name corev1.ResourceName, want, used, have int64) *refusal {
	return &refusal{"OutOf" + string(name), fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, want, used, have)}
}

// tolerates checks only NoExecute taints; the scheduler checks the others.
func tolerates(pod *corev1.Pod, node *corev1.Node) bool {
	noExecute := func(t *corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }
	_, untolerated := scheduling.FindMatchingUntoleratedTaint(klog.Logger{}, node.Spec.Taints, pod.Spec.Tolerations, noExecute, false)
	return !untolerated
}

// hostPort is a port of the node that a pod uses.
type hostPort struct {
	ip       string
	protocol corev1.Protocol
	port     int32
}

func hostPorts(pod *corev1.Pod) []hostPort {
	var out []hostPort
	for c := range podspec.Main(pod) {
		for _, p := range c.Ports {
			port := p.HostPort
			if pod.Spec.HostNetwork && port == 0 {
				port = p.ContainerPort
			}
			if port > 0 {
				out = append(out, hostPort{p.HostIP, p.Protocol, port})
			}
		}
	}
	return out
}

// portsTaken reports whether a host port of the pod conflicts with one of others.
func portsTaken(pod *corev1.Pod, others []*corev1.Pod) bool {
	wants := hostPorts(pod)
	if len(wants) == 0 {
		return false
	}
	any := func(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }
	for _, o := range others {
		for _, has := range hostPorts(o) {
			for _, want := range wants {
				if has.port == want.port && has.protocol == want.protocol && (has.ip == want.ip || any(has.ip) || any(want.ip)) {
					return true
				}
			}
		}
	}
	return false
}
