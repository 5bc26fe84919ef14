package plan

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Eviction is what a drain would do with a pod.
type Eviction struct {
	Pod       string     `json:"pod"`                 // namespace/name
	Stays     string     `json:"stays,omitempty"`     // why it is not evicted
	Blocked   string     `json:"blocked,omitempty"`   // by which budget, and why
	Waits     string     `json:"waits,omitempty"`     // for which budget: evictable once earlier ones are replaced
	Lost      bool       `json:"lost,omitempty"`      // no controller replaces it
	LocalData bool       `json:"localData,omitempty"` // it has emptyDir volumes, whose content is deleted
	Lands     *Placement `json:"lands,omitempty"`     // where its replacement would run
}

// Drain says what the drain of a node would do with each of its pods, in the
// order of their names. The error says that the node does not exist.
func Drain(c *Cluster, node string) ([]Eviction, error) {
	i := slices.IndexFunc(c.Nodes, func(n *corev1.Node) bool { return n.Name == node })
	if i < 0 {
		return nil, fmt.Errorf("node %q does not exist", node)
	}
	s := New(c)
	cordoned := c.Nodes[i].DeepCopy()
	cordoned.Spec.Unschedulable = true
	cordoned.Spec.Taints = append(cordoned.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	s.SetNode(cordoned)
	budgets := newBudgets(c)
	var out []Eviction
	for _, p := range onNode(c, node) {
		e := evict(p, budgets)
		if e.Stays == "" {
			s.Remove(p)
		}
		out = append(out, e)
	}
	s.replace(out, onNode(c, node))
	return out, nil
}

// onNode returns the pods of a node that still run, by namespace and name.
func onNode(c *Cluster, node string) (out []*corev1.Pod) {
	for _, p := range c.Pods {
		if p.Spec.NodeName == node && !Ended(p) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return out
}

// evict says whether a pod would be evicted.
func evict(p *corev1.Pod, budgets budgets) Eviction {
	e := Eviction{Pod: p.Namespace + "/" + p.Name}
	owner := metav1.GetControllerOf(p)
	switch {
	case p.Annotations[corev1.MirrorPodAnnotationKey] != "":
		e.Stays = "it is a static pod"
		return e
	case owner != nil && owner.Kind == "DaemonSet":
		e.Stays = "its DaemonSet would run it again"
		return e
	}
	e.Lost = owner == nil
	e.LocalData = slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil })
	if p.DeletionTimestamp == nil {
		e.Blocked, e.Waits = budgets.take(p)
	}
	return e
}

// replace places the replacements of evicted pods. A pod that a budget holds is
// still counted as gone: it goes last.
func (s *Simulation) replace(evictions []Eviction, pods []*corev1.Pod) {
	var news []*corev1.Pod
	var of []int
	for i, p := range pods {
		if e := evictions[i]; e.Stays != "" || e.Lost || e.Blocked != "" || p.DeletionTimestamp != nil {
			continue
		}
		news, of = append(news, replacement(p)), append(of, i)
	}
	for j, placed := range s.Place(news...) {
		placed.Pod = evictions[of[j]].Pod
		evictions[of[j]].Lands = &placed
	}
}

// replacement returns the pod that a controller would create instead of another.
func replacement(p *corev1.Pod) *corev1.Pod {
	r := p.DeepCopy()
	r.UID = types.UID("instead of " + string(p.UID))
	r.Spec.NodeName, r.Status, r.DeletionTimestamp = "", corev1.PodStatus{Phase: corev1.PodPending}, nil
	return r
}

// budgets are the disruption budgets of a cluster, with what is left of each.
type budgets map[string][]*allowance // by namespace

type allowance struct {
	budget   *policyv1.PodDisruptionBudget
	selector labels.Selector
	left     int32
}

func newBudgets(c *Cluster) budgets {
	out := budgets{}
	for _, b := range c.Budgets {
		sel, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			continue
		}
		out[b.Namespace] = append(out[b.Namespace], &allowance{b, sel, b.Status.DisruptionsAllowed})
	}
	return out
}

// take counts the eviction of a pod. It returns which budget refuses it for
// good, or until pods that were evicted before are replaced.
func (all budgets) take(p *corev1.Pod) (blocked, waits string) {
	var mine []*allowance
	for _, a := range all[p.Namespace] {
		if a.selector.Matches(labels.Set(p.Labels)) {
			mine = append(mine, a)
		}
	}
	switch {
	case p.Status.Phase == corev1.PodPending || len(mine) == 0:
		return "", ""
	case len(mine) > 1:
		return fmt.Sprintf("it has more than one PodDisruptionBudget: %s, %s", mine[0].budget.Name, mine[1].budget.Name), ""
	}
	a := mine[0]
	status := a.budget.Status
	switch {
	case !ready(p) && a.budget.Spec.UnhealthyPodEvictionPolicy != nil && *a.budget.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow,
		!ready(p) && status.CurrentHealthy >= status.DesiredHealthy && status.DesiredHealthy > 0:
		return "", "" // a pod that is not healthy does not count
	case status.DisruptionsAllowed <= 0:
		return fmt.Sprintf("PodDisruptionBudget %s allows no eviction: %d of %d pods are healthy, %d must be", a.budget.Name, status.CurrentHealthy, status.ExpectedPods, status.DesiredHealthy), ""
	case a.left <= 0:
		return "", fmt.Sprintf("PodDisruptionBudget %s, until the pods evicted before it are replaced", a.budget.Name)
	}
	a.left--
	return "", ""
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
