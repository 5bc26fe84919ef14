package why

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// unscheduled explains pods without a node.
func unscheduled(f *Facts, p *corev1.Pod) []Finding {
	if p.Spec.NodeName != "" || p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodPending && p.Status.Phase != "" {
		return nil
	}
	if len(p.Spec.SchedulingGates) > 0 {
		return []Finding{found(root, "the pod has the scheduling gate %q: the scheduler does not look at it", p.Spec.SchedulingGates[0].Name).
			by("spec.schedulingGates").fix("find the controller that removes the gate, or remove it: podium edit pod %s%s", p.Name, in(p.Namespace))}
	}
	if waits := awaited(f, p); waits != nil {
		return waits
	}
	message, shown := answer(f, p)
	if message == "" {
		return unasked(f, p)
	}
	var out []Finding
	for _, r := range reasons(message) {
		out = append(out, explainReason(f, p, r).by(shown))
	}
	if unready := explainDevices(f, p, message); len(out) == 0 && unready != nil {
		out = append(out, unready.by(shown))
	} else if len(out) == 0 {
		out = append(out, found(root, "no node takes the pod: %s", oneLine(message)).by(shown))
	}
	return append(out, nominated(p)...)
}

// answer returns the scheduler's message, and the evidence for it.
func answer(f *Facts, p *corev1.Pod) (message, shown string) {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message, fmt.Sprintf("condition PodScheduled=False (%s): %s", c.Reason, c.Message)
		}
	}
	if e := f.event("Pod", p.Name, "FailedScheduling"); e != nil {
		return e.Message, f.said(e)
	}
	return "", ""
}

// unasked explains a pod that no scheduler has answered for.
func unasked(f *Facts, p *corev1.Pod) []Finding {
	name := p.Spec.SchedulerName
	if name != "" && name != corev1.DefaultSchedulerName {
		return []Finding{found(likely, "no scheduler of the name %q has answered: the pod waits for one", name).by("spec.schedulerName", "no condition PodScheduled").
			fix("run that scheduler, or leave out spec.schedulerName")}
	}
	if why := stale(f, "kube-scheduler"); why != "" {
		return []Finding{found(root, "the scheduler is not running").by(why).fix("start kube-scheduler on a control plane: systemctl status kube-scheduler")}
	}
	return []Finding{found(hint, "the scheduler has not answered yet").by("no condition PodScheduled")}
}

// leaseGrace is how long a leader may be silent.
const leaseGrace = time.Minute

// stale returns the evidence that no leader holds the lease of a daemon; "" if
// one does, or there is no lease, as without leader election.
func stale(f *Facts, daemon string) string {
	lease := one[coordinationv1.Lease](f, "Lease", "kube-system", daemon)
	switch {
	case lease == nil || lease.Spec.RenewTime == nil:
		return ""
	case f.Now.Sub(lease.Spec.RenewTime.Time) > leaseGrace:
		return fmt.Sprintf("lease kube-system/%s was renewed %s ago", daemon, f.age(lease.Spec.RenewTime.Time))
	}
	return ""
}

// reason is one of the reasons in a scheduler's message, and for how many nodes
// it holds.
type reason struct {
	nodes string
	text  string
}

var (
	nodeCount = regexp.MustCompile(`^0/\d+ nodes are available: `)
	counted   = regexp.MustCompile(`^(\d+) (.+)$`)
)

// reasons splits "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) …".
// The part about preemption is left out.
func reasons(message string) (out []reason) {
	if !nodeCount.MatchString(message) {
		return nil
	}
	list := nodeCount.ReplaceAllString(message, "")
	for _, mark := range []string{". preemption:", ". no new claims", ". "} {
		if i := strings.Index(list, mark); i >= 0 {
			list = list[:i]
		}
	}
	for _, part := range strings.Split(strings.TrimSuffix(list, "."), ", ") {
		if m := counted.FindStringSubmatch(part); m != nil {
			out = append(out, reason{m[1], m[2]})
		} else if len(out) > 0 {
			out[len(out)-1].text += ", " + part
		}
	}
	return out
}

// explanations of the scheduler's reasons: a cause, and a fix with the pod's
// name.
var explanations = []struct{ text, cause, fix string }{
	{"didn't match Pod's node affinity/selector", "no node has the labels that the pod's nodeSelector or node affinity asks for", "podium label node NODE KEY=VALUE, or change the nodeSelector; labels: podium get nodes --show-labels"},
	{"were unschedulable", "%s node(s) are cordoned", "podium uncordon NODE"},
	{"didn't have free ports", "the host port that the pod asks for is taken on %s node(s)", "remove hostPort from the pod, or run fewer of these pods per node"},
	{"didn't match pod topology spread constraints", "another pod would spread the pods more unevenly than topologySpreadConstraints allow", "add nodes to the domain with the fewest pods, or set whenUnsatisfiable to ScheduleAnyway"},
	{"didn't satisfy existing pods anti-affinity rules", "pods that run already have an anti-affinity against this pod", "podium get pods -o wide; change the podAntiAffinity of those pods"},
	{"didn't match pod anti-affinity rules", "the pod's podAntiAffinity rules out the nodes where matching pods run", "add a node, run fewer replicas, or prefer the rule instead of requiring it"},
	{"didn't match pod affinity rules", "no node runs the pods that the pod's podAffinity asks for", "start those pods first, or prefer the rule instead of requiring it"},
	{"Too many pods", "%s node(s) run as many pods as they may", "podium get pods -A -o wide; remove pods or add a node"},
	{"unbound immediate PersistentVolumeClaims", "a claim of the pod is not bound to a volume yet", "podium why pvc CLAIM"},
	{"volume node affinity conflict", "the volume of the pod is on another node than those that have room", "make room on the node of the volume: podium get pv -o wide"},
	{"find available persistent volumes to bind", "no free volume fits the claim of the pod on any node", "create a PersistentVolume, or a StorageClass with a provisioner"},
	{"exceed max volume count", "%s node(s) have as many volumes of a CSI driver as they may", "podium get csinodes -o yaml; remove pods with such volumes, or add a node"},
	{"no available volume zone", "the volume of the pod is in another zone or region than %s node(s)", "make room on a node where the volume is: podium get pv --show-labels"},
	{"enough free storage", "the driver of the claim's class has too little space for it on %s node(s)", "podium get csistoragecapacities -A; request less storage, or add space"},
	{"requested node name", "the pod asks for a node that does not exist", "correct spec.nodeName"},
	{"ReadWriteOncePod", "another pod uses the claim, whose access mode is ReadWriteOncePod", "delete the other pod, or use ReadWriteOnce"},
}

func explainReason(f *Facts, p *corev1.Pod, r reason) Finding {
	if name, ok := strings.CutPrefix(r.text, "Insufficient "); ok {
		return insufficient(f, p, corev1.ResourceName(name), r)
	}
	if m := untolerated.FindStringSubmatch(r.text); m != nil {
		return tainted(f, r, m[1])
	}
	if m := missingClaim.FindStringSubmatch(r.text); m != nil {
		return found(root, "the PersistentVolumeClaim %q of the pod does not exist", m[1]).fix("create the claim in namespace %s, or correct the volume's claimName", p.Namespace)
	}
	if found := explainDevices(f, p, r.text); found != nil {
		return *found
	}
	for _, e := range explanations {
		if strings.Contains(r.text, e.text) {
			cause := e.cause
			if strings.Contains(cause, "%s") {
				cause = fmt.Sprintf(cause, r.nodes)
			}
			return found(root-len(explanations)+slices.IndexFunc(explanations, func(x struct{ text, cause, fix string }) bool { return x.text == e.text }), "%s", cause).fix("%s", e.fix)
		}
	}
	return found(likely, "%s node(s) refuse the pod: %s", r.nodes, r.text)
}

var (
	untolerated  = regexp.MustCompile(`untolerated taint(?:\(s\))?(?: \{([^}]*)\})?`)
	missingClaim = regexp.MustCompile(`persistentvolumeclaim "([^"]+)" not found`)
)

// insufficient says whether the nodes are full, or none is large enough.
func insufficient(f *Facts, p *corev1.Pod, name corev1.ResourceName, r reason) Finding {
	wants := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})[name]
	var most *resource.Quantity
	for _, n := range each[corev1.Node](f, "Node") {
		if q, ok := n.Status.Allocatable[name]; ok && (most == nil || q.Cmp(*most) > 0) {
			most = &q
		}
	}
	lower := fmt.Sprintf("podium set resources %s --requests=%s=LESS%s", setTarget(p), name, in(p.Namespace))
	switch {
	case most == nil && f.knows("nodes", ""):
		return found(root, "no node has the resource %s, of which the pod requests %s", name, wants.String()).fix("install the device plugin that offers it, or remove the request")
	case most == nil:
		return found(root, "%s node(s) have too little %s for the request of %s", r.nodes, name, wants.String()).fix("%s, or add a node", lower)
	case wants.Cmp(*most) > 0:
		return found(root, "no node is large enough: the pod requests %s of %s, the largest node has %s", wants.String(), name, most.String()).fix("%s, or add a larger node", lower)
	}
	return found(root, "the nodes are full: the pod requests %s of %s, and other pods have requested the rest of at most %s per node", wants.String(), name, most.String()).
		fix("%s, remove other pods, or add a node", lower)
}

func tainted(f *Facts, r reason, taint string) Finding {
	if strings.HasPrefix(taint, corev1.TaintNodeNotReady) || strings.HasPrefix(taint, corev1.TaintNodeUnreachable) {
		return found(root, "%s node(s) are not ready", r.nodes).fix("podium get nodes, then podium why node NODE")
	}
	if strings.HasPrefix(taint, corev1.TaintNodeUnschedulable) {
		return found(root, "%s node(s) are cordoned", r.nodes).fix("podium uncordon NODE")
	}
	if taint == "" {
		taint = taintsOf(f)
	}
	key, _, _ := strings.Cut(taint, ":")
	key, _, _ = strings.Cut(key, "=")
	return found(root, "%s node(s) have the taint %s, which the pod does not tolerate", r.nodes, taint).
		fix("add a toleration to the pod, or: podium taint nodes NODE %s-", strings.TrimSpace(key))
}

// taintsOf lists the taints of all nodes.
func taintsOf(f *Facts) string {
	var out []string
	for _, n := range each[corev1.Node](f, "Node") {
		for _, t := range n.Spec.Taints {
			if text := t.ToString(); t.Effect != corev1.TaintEffectPreferNoSchedule && !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return strings.Join(out, ", ")
}

// nominated tells that a pod waits for others to leave, or for what it needs to be ready.
func nominated(p *corev1.Pod) []Finding {
	if p.Status.NominatedNodeName == "" {
		return nil
	}
	return []Finding{found(likely, "the pod is to run on node %s: it waits until the pods that it preempts there have ended, or until its volumes and devices are ready", p.Status.NominatedNodeName).by("status.nominatedNodeName")}
}
