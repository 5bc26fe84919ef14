package scheduler_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The reference implements the same rules as literally as they are documented, on API objects
// only and without regard to speed.

type cluster struct {
	nodes []*corev1.Node
	pods  []*corev1.Pod // on nodes
}

// obviousReasons returns the reasons of the first rule that rejects the node.
func (c *cluster) obviousReasons(pod *corev1.Pod, node *corev1.Node) []string {
	for _, rule := range []func(*corev1.Pod, *corev1.Node) []string{
		cordoned, tainted, notSelected, c.portsTaken, c.tooLittle,
	} {
		if reasons := rule(pod, node); len(reasons) > 0 {
			return reasons
		}
	}
	return nil
}

func tolerates(pod *corev1.Pod, taint corev1.Taint, only ...corev1.TaintEffect) bool {
	for _, t := range pod.Spec.Tolerations {
		if len(only) > 0 && !slices.Contains(only, t.Effect) {
			continue
		}
		effect := t.Effect == "" || t.Effect == taint.Effect
		key := t.Key == "" || t.Key == taint.Key
		value := t.Operator == corev1.TolerationOpExists || t.Value == taint.Value
		if effect && key && value {
			return true
		}
	}
	return false
}

func cordoned(pod *corev1.Pod, node *corev1.Node) []string {
	if node.Spec.Unschedulable && !tolerates(pod, corev1.Taint{Key: "node.kubernetes.io/unschedulable", Effect: "NoSchedule"}) {
		return []string{"node(s) were unschedulable"}
	}
	return nil
}

func tainted(pod *corev1.Pod, node *corev1.Node) []string {
	for _, t := range node.Spec.Taints {
		if t.Effect != "PreferNoSchedule" && !tolerates(pod, t) {
			return []string{fmt.Sprintf("node(s) had untolerated taint {%s: %s}", t.Key, t.Value)}
		}
	}
	return nil
}

func notSelected(pod *corev1.Pod, node *corev1.Node) []string {
	no := []string{"node(s) didn't match Pod's node affinity/selector"}
	for k, v := range pod.Spec.NodeSelector {
		if have, ok := node.Labels[k]; !ok || have != v {
			return no
		}
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return nil
	}
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return nil
	}
	for _, term := range required.NodeSelectorTerms {
		if termMatches(term, node) {
			return nil
		}
	}
	return no
}

func termMatches(term corev1.NodeSelectorTerm, node *corev1.Node) bool {
	met := 0
	for _, r := range term.MatchExpressions {
		if !requirementMet(r, node.Labels) {
			return false
		}
		met++
	}
	for _, r := range term.MatchFields {
		if !requirementMet(r, map[string]string{"metadata.name": node.Name}) {
			return false
		}
		met++
	}
	return met > 0
}

func requirementMet(r corev1.NodeSelectorRequirement, values map[string]string) bool {
	v, ok := values[r.Key]
	switch r.Operator {
	case "In":
		return ok && slices.Contains(r.Values, v)
	case "NotIn":
		return !(ok && slices.Contains(r.Values, v))
	case "Exists":
		return ok
	case "DoesNotExist":
		return !ok
	}
	number, err1 := strconv.Atoi(v)
	bound, err2 := strconv.Atoi(r.Values[0])
	if !ok || err1 != nil || err2 != nil {
		return false
	}
	return r.Operator == "Gt" && number > bound || r.Operator == "Lt" && number < bound
}

func (c *cluster) on(node *corev1.Node) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range c.pods {
		if p.Spec.NodeName == node.Name {
			out = append(out, p)
		}
	}
	return out
}

func (c *cluster) portsTaken(pod *corev1.Pod, node *corev1.Node) []string {
	for _, other := range c.on(node) {
		for _, a := range allPorts(pod) {
			for _, b := range allPorts(other) {
				any := a.HostIP == "" || b.HostIP == "" || a.HostIP == "0.0.0.0" || b.HostIP == "0.0.0.0"
				if a.HostPort != 0 && a.HostPort == b.HostPort && a.Protocol == b.Protocol && (any || a.HostIP == b.HostIP) {
					return []string{"node(s) didn't have free ports for the requested pod ports"}
				}
			}
		}
	}
	return nil
}

func allPorts(p *corev1.Pod) []corev1.ContainerPort {
	var out []corev1.ContainerPort
	for _, c := range p.Spec.Containers {
		out = append(out, c.Ports...)
	}
	for _, c := range p.Spec.InitContainers {
		if isSidecar(c) {
			out = append(out, c.Ports...)
		}
	}
	return out
}

func isSidecar(c corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == "Always"
}

// obviousRequest returns the maximum of one resource that a pod needs at any time: while each
// init container runs, beside the sidecars before it, and afterwards.
func obviousRequest(p *corev1.Pod, name corev1.ResourceName, missing string) float64 {
	of := func(c corev1.Container) float64 {
		q, ok := c.Resources.Requests[name]
		if !ok {
			if missing == "" {
				return 0
			}
			q = resource.MustParse(missing)
		}
		return q.AsApproximateFloat64()
	}
	most, sidecars := 0.0, 0.0
	for _, c := range p.Spec.InitContainers {
		most = max(most, sidecars+of(c))
		if isSidecar(c) {
			sidecars += of(c)
		}
	}
	end := sidecars
	for _, c := range p.Spec.Containers {
		end += of(c)
	}
	overhead := p.Spec.Overhead[name]
	return max(most, end) + overhead.AsApproximateFloat64()
}

func allocatable(node *corev1.Node, name corev1.ResourceName) float64 {
	q := node.Status.Allocatable[name]
	return q.AsApproximateFloat64()
}

func (c *cluster) tooLittle(pod *corev1.Pod, node *corev1.Node) []string {
	var reasons []string
	if float64(len(c.on(node))+1) > allocatable(node, "pods") {
		reasons = append(reasons, "Too many pods")
	}
	for _, name := range []corev1.ResourceName{"cpu", "memory", "ephemeral-storage", "example.com/device"} {
		want := obviousRequest(pod, name, "")
		left := allocatable(node, name)
		for _, p := range c.on(node) {
			left -= obviousRequest(p, name, "")
		}
		if want > 0 && want > left+1e-6 {
			reasons = append(reasons, "Insufficient "+string(name))
		}
	}
	return reasons
}

// obviousScores returns the total score of each feasible node.
func (c *cluster) obviousScores(pod *corev1.Pod) map[string]int64 {
	var feasible []*corev1.Node
	for _, n := range c.nodes {
		if c.obviousReasons(pod, n) == nil {
			feasible = append(feasible, n)
		}
	}
	unwelcome, liked := map[string]int64{}, map[string]int64{}
	var mostUnwelcome, mostLiked int64
	for _, n := range feasible {
		for _, t := range n.Spec.Taints {
			if t.Effect == "PreferNoSchedule" && !tolerates(pod, t, "", "PreferNoSchedule") {
				unwelcome[n.Name]++
			}
		}
		if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
			for _, p := range a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
				if termMatches(p.Preference, n) {
					liked[n.Name] += int64(p.Weight)
				}
			}
		}
		mostUnwelcome, mostLiked = max(mostUnwelcome, unwelcome[n.Name]), max(mostLiked, liked[n.Name])
	}
	out := map[string]int64{}
	for _, n := range feasible {
		score := int64(300)
		if mostUnwelcome > 0 {
			score = 3 * (100 - unwelcome[n.Name]*100/mostUnwelcome)
		}
		if mostLiked > 0 {
			score += 2 * (liked[n.Name] * 100 / mostLiked)
		}
		out[n.Name] = score + c.obviousLeft(pod, n) + c.obviousBalance(pod, n)
	}
	return out
}

func (c *cluster) used(pod *corev1.Pod, node *corev1.Node, name corev1.ResourceName, missing string) float64 {
	sum := obviousRequest(pod, name, missing)
	for _, p := range c.on(node) {
		sum += obviousRequest(p, name, missing)
	}
	return sum
}

func (c *cluster) obviousLeft(pod *corev1.Pod, node *corev1.Node) int64 {
	sum := int64(0)
	for name, missing := range map[corev1.ResourceName]string{"cpu": "100m", "memory": "200Mi"} {
		used, alloc := c.used(pod, node, name, missing), allocatable(node, name)
		if used <= alloc+1e-9 {
			sum += int64((alloc-used)*100/alloc + 1e-9)
		}
	}
	return sum / 2
}

func (c *cluster) obviousBalance(pod *corev1.Pod, node *corev1.Node) int64 {
	if obviousRequest(pod, "cpu", "") == 0 && obviousRequest(pod, "memory", "") == 0 {
		return 0
	}
	share := func(name corev1.ResourceName) float64 {
		return math.Min(1, c.used(pod, node, name, "")/allocatable(node, name))
	}
	mean := (share("cpu") + share("memory")) / 2
	deviation := math.Sqrt((math.Pow(share("cpu")-mean, 2) + math.Pow(share("memory")-mean, 2)) / 2)
	return int64((1-deviation)*100 + 1e-9)
}

// obviousMessage returns the error message for a pod that fits on no node.
func (c *cluster) obviousMessage(pod *corev1.Pod) string {
	counts := map[string]int{}
	for _, n := range c.nodes {
		for _, r := range c.obviousReasons(pod, n) {
			counts[r]++
		}
	}
	var parts []string
	for r, n := range counts {
		parts = append(parts, fmt.Sprint(n, " ", r))
	}
	slices.Sort(parts)
	return fmt.Sprintf("0/%d nodes are available: %s.", len(c.nodes), strings.Join(parts, ", "))
}
