package why

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// refusedPod explains pods that a kubelet or another daemon has ended.
func refusedPod(f *Facts, p *corev1.Pod) (out []Finding) {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			out = append(out, found(likely, "the pod was removed from its node: %s", oneLine(c.Message)).by("condition DisruptionTarget=True ("+c.Reason+")"))
		}
	}
	if p.Status.Phase != corev1.PodFailed || p.Status.Reason == "" {
		return out
	}
	shown := "status.reason: " + p.Status.Reason + ": " + p.Status.Message
	switch r := p.Status.Reason; {
	case r == "Evicted":
		return append(out, found(root, "node %s has evicted the pod: %s", p.Spec.NodeName, oneLine(p.Status.Message)).by(shown).
			fix("podium why node %s; set requests and limits so that the node is not overcommitted", p.Spec.NodeName))
	case r == "DeadlineExceeded":
		return append(out, found(root, "the pod ran longer than its activeDeadlineSeconds").by(shown).fix("raise spec.activeDeadlineSeconds"))
	case strings.HasPrefix(r, "OutOf"):
		return append(out, found(root, "node %s had no room for the pod when it arrived: %s", p.Spec.NodeName, oneLine(p.Status.Message)).by(shown).
			fix("leave spec.nodeName to the scheduler, or lower the requests"))
	}
	return append(out, found(root, "node %s has refused the pod: %s", p.Spec.NodeName, oneLine(p.Status.Message)).by(shown).
		fix("leave spec.nodeName to the scheduler, or change the pod so that the node takes it"))
}

var (
	volumeName   = regexp.MustCompile(`volume "([^"]+)"`)
	volumeObject = regexp.MustCompile(`(secret|configmap) "([^"]+)" not found`)
	volumeKey    = regexp.MustCompile(`(?:references non-existent|non-existent) (secret|config|configmap) key: ?(\S+)`)
)

// unmounted explains pods whose volumes cannot be mounted.
func unmounted(f *Facts, p *corev1.Pod) []Finding {
	if p.Spec.NodeName == "" || p.DeletionTimestamp != nil || started(p) {
		return nil
	}
	e := f.event("Pod", p.Name, "FailedMount", "FailedAttachVolume", "FailedMapVolume")
	if e == nil {
		return nil
	}
	volume := "?"
	if m := volumeName.FindStringSubmatch(e.Message); m != nil {
		volume = m[1]
	}
	if m := volumeObject.FindStringSubmatch(e.Message); m != nil {
		return []Finding{found(root, "the volume %q needs the %s %q, which does not exist", volume, kindWord(m[1]), m[2]).by(f.said(e)).
			fix("%s", createFix(m[1], m[2], "KEY", p.Namespace))}
	}
	if m := volumeKey.FindStringSubmatch(e.Message); m != nil {
		return []Finding{found(root, "the volume %q needs the key %q of a %s, which has no such key", volume, m[2], kindWord(m[1])).by(f.said(e)).
			fix("add the key, or correct the items of the volume")}
	}
	_, cause, ok := strings.Cut(e.Message, " : ")
	if !ok {
		cause = e.Message
	}
	return []Finding{found(root, "the volume %q cannot be mounted on node %s: %s", volume, p.Spec.NodeName, oneLine(cause)).by(f.said(e)).
		fix("correct the volume in the pod: podium get pod %s%s -o yaml", p.Name, in(p.Namespace))}
}

// started reports whether a container of the pod has ever run.
func started(p *corev1.Pod) bool {
	for _, c := range statuses(p) {
		if c.State.Running != nil || c.State.Terminated != nil || c.RestartCount > 0 {
			return true
		}
	}
	return false
}

// noSandbox explains pods that get no network or no sandbox.
func noSandbox(f *Facts, p *corev1.Pod) []Finding {
	e := f.event("Pod", p.Name, "FailedCreatePodSandBox", "NetworkNotReady")
	if e == nil || p.DeletionTimestamp != nil || started(p) {
		return nil
	}
	if strings.Contains(e.Message, "RuntimeHandler") || strings.Contains(e.Message, "runtime handler") || strings.Contains(e.Message, "no runtime for") {
		return []Finding{found(root, "node %s has no runtime for the pod's RuntimeClass", p.Spec.NodeName).by(f.said(e)).fix("configure the handler in the node's containerd, or leave out runtimeClassName")}
	}
	return []Finding{found(root, "node %s cannot make the pod's sandbox: %s", p.Spec.NodeName, oneLine(e.Message)).by(f.said(e)).
		fix("look at containerd and kube-proxy on node %s: journalctl -u containerd -u kube-proxy", p.Spec.NodeName)}
}

// patience is how long a kubelet may take before its silence is a sign.
const patience = 30 * time.Second

// stuckPod explains pods that their kubelet does not run or does not end.
func stuckPod(f *Facts, p *corev1.Pod) []Finding {
	if p.Spec.NodeName == "" {
		return nil
	}
	node := one[corev1.Node](f, "Node", "", p.Spec.NodeName)
	overdue := p.DeletionTimestamp != nil && f.Now.After(p.DeletionTimestamp.Add(patience))
	switch {
	case f.missing("nodes", "", p.Spec.NodeName):
		return []Finding{found(root, "the pod is bound to node %q, which does not exist", p.Spec.NodeName).by("spec.nodeName").
			fix("podium delete pod %s%s --force --grace-period=0", p.Name, in(p.Namespace))}
	case overdue && node != nil && !nodeReady(node):
		return []Finding{found(root, "the pod cannot end because node %s is not ready: its kubelet does not confirm that the containers are gone", node.Name).
			by(fmt.Sprintf("metadata.deletionTimestamp %s ago", f.age(p.DeletionTimestamp.Time))).
			fix("repair the node; if the machine is gone for good: podium delete node %s", node.Name)}
	case overdue && len(p.Finalizers) == 0:
		return []Finding{found(likely, "the kubelet of node %s has not ended the containers %s after the end of the grace period", p.Spec.NodeName, f.age(p.DeletionTimestamp.Time)).
			by("metadata.deletionTimestamp").by(f.said(f.event("Pod", p.Name, "FailedKillPod"))).
			fix("look at the kubelet of node %s: journalctl -u kubelet", p.Spec.NodeName)}
	case p.DeletionTimestamp != nil && len(p.Finalizers) == 0 && p.DeletionGracePeriodSeconds != nil:
		return []Finding{found(likely, "the pod is ending: its containers have a grace period of %d s", *p.DeletionGracePeriodSeconds).by("metadata.deletionTimestamp")}
	case p.Status.Phase == corev1.PodPending && len(p.Status.ContainerStatuses) == 0 && f.Now.Sub(p.CreationTimestamp.Time) > patience:
		return []Finding{found(effect, "the kubelet of node %s has not reported about the pod", p.Spec.NodeName).by("status.containerStatuses is empty").fix("podium why node %s", p.Spec.NodeName)}
	}
	return nil
}
