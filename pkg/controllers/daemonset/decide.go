package daemonset

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"podium/pkg/controller/pods"
)

// burst is the maximum number of pods that one reconcile creates, and that it deletes.
const burst = 250

// plan is the actions of one reconcile.
type plan struct {
	Create []string      // the nodes that get a pod
	Delete []*corev1.Pod // running pods
	Ended  []*corev1.Pod // failed and succeeded pods, which are deleted too
}

// decide returns the next actions. A rolling update goes on only when every node has the
// pods that it should have. held returns how long a failed pod of a node must stay.
func (s *state) decide(held func(node string) time.Duration) plan {
	var p plan
	for _, n := range s.nodes {
		s.visit(n.Name, &p, held)
	}
	p.Delete = append(p.Delete, s.lost()...)
	if len(p.Create)+len(p.Delete)+len(p.Ended) == 0 && s.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		p = s.roll()
	}
	p.Create = p.Create[:min(len(p.Create), burst)]
	p.Delete = p.Delete[:min(len(p.Delete), burst)]
	p.Ended = p.Ended[:min(len(p.Ended), burst)]
	return p
}

// visit adds the actions for one node.
func (s *state) visit(node string, p *plan, held func(string) time.Duration) {
	list := s.pods[node]
	switch {
	case s.runs[node] && len(list) == 0:
		p.Create = append(p.Create, node)
	case s.keeps[node]:
		var running []*corev1.Pod
		for _, pod := range list {
			switch {
			case pod.DeletionTimestamp != nil:
			case pod.Status.Phase == corev1.PodFailed && held(node) > 0:
				s.lookAgain(held(node))
			case pods.Terminal(pod):
				p.Ended = append(p.Ended, pod)
			default:
				running = append(running, pod)
			}
		}
		p.Delete = append(p.Delete, s.surplus(running)...)
	default:
		for _, pod := range list {
			if pod.DeletionTimestamp == nil {
				p.Delete = append(p.Delete, pod)
			}
		}
	}
}

// surplus returns the pods of a node that are one too many: all but the oldest or, if the
// update strategy surges, all but the oldest of the current template and of old ones. Of
// these two, the old one is surplus once the new one is available, or if it is not ready.
func (s *state) surplus(running []*corev1.Pod) []*corev1.Pod {
	if len(running) < 2 {
		return nil
	}
	if share(s.rolling().MaxSurge, 1) == 0 {
		return running[1:]
	}
	var updated, old *corev1.Pod
	var out []*corev1.Pod
	for _, pod := range running {
		kept := &old
		if s.updated(pod) {
			kept = &updated
		}
		if *kept != nil {
			out = append(out, pod)
			continue
		}
		*kept = pod
	}
	if updated != nil && old != nil && (!pods.Ready(old) || s.available(updated)) {
		out = append(out, old)
	}
	return out
}

// lost returns the pods that wait for nodes that do not exist.
func (s *state) lost() (out []*corev1.Pod) {
	for node, list := range s.pods {
		if _, exists := s.runs[node]; exists {
			continue
		}
		for _, pod := range list {
			if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
				out = append(out, pod)
			}
		}
	}
	return out
}

// rolling returns the parameters of a rolling update, empty for other strategies.
func (s *state) rolling() appsv1.RollingUpdateDaemonSet {
	if u := s.Spec.UpdateStrategy; u.Type == appsv1.RollingUpdateDaemonSetStrategyType && u.RollingUpdate != nil {
		return *u.RollingUpdate
	}
	return appsv1.RollingUpdateDaemonSet{}
}

// share returns a number or, rounded up, a percentage of total; 0 if there is none.
func share(v *intstr.IntOrString, total int) int {
	if v == nil {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(v, total, true)
	if err != nil {
		return 0 // the API refuses such values
	}
	return n
}
