package podsecurity

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/request"
)

// namespace checks a namespace's labels, and warns of pods that are there
// already and would not be let in any more.
func (p *Plugin) namespace(ctx context.Context, a *admission.Attributes, ns *corev1.Namespace) error {
	if a.Subresource != "" {
		return nil
	}
	policy, errs := PolicyOf(ns.Labels, p.cfg.Defaults)
	invalid := apierrors.NewInvalid(a.Kind.GroupVersionKind.GroupKind(), ns.Name, errs)
	if a.Operation == admission.Create {
		if len(errs) > 0 {
			return invalid
		}
		p.warnExempt(ctx, ns, policy)
		return nil
	}
	before, errsBefore := PolicyOf(a.Old.(*corev1.Namespace).Labels, p.cfg.Defaults)
	if len(errs) > 0 && !apiequality.Semantic.DeepEqual(errs, errsBefore) {
		return invalid // labels that were wrong already do not get in the way of other changes
	}
	if !stricter(policy.Enforce, before.Enforce) {
		return nil
	}
	if p.warnExempt(ctx, ns, policy) {
		return nil
	}
	for _, text := range p.wouldBeRefused(ctx, ns.Name, policy.Enforce) {
		request.Warn(ctx, text)
	}
	return nil
}

// stricter: pods that were let in might not be now.
func stricter(now, before Standard) bool {
	switch {
	case now == before, now.Level == Privileged:
		return false
	case now.Version == before.Version:
		return now.Level > before.Level
	}
	return true
}

// warnExempt says whether the namespace is exempt, and warns that its labels
// have no effect.
func (p *Plugin) warnExempt(ctx context.Context, ns *corev1.Namespace, policy Policy) bool {
	if !slices.Contains(p.cfg.Exempt.Namespaces, ns.Name) {
		return false
	}
	if policy.privileged() || policy.same(p.cfg.Defaults) {
		return true
	}
	var said []string
	for _, mode := range []struct {
		name string
		std  Standard
	}{{"enforce", policy.Enforce}, {"audit", policy.Audit}, {"warn", policy.Warn}} {
		_, level := ns.Labels[prefix+mode.name]
		_, version := ns.Labels[prefix+mode.name+"-version"]
		if mode.std.Level != Privileged && (level || version) {
			said = append(said, mode.name+"="+mode.std.String())
		}
	}
	request.Warn(ctx, fmt.Sprintf("namespace %q is exempt from Pod Security, and the policy (%s) will be ignored", ns.Name, strings.Join(said, ", ")))
	return true
}

// Looking at the pods of a large namespace must not hold the request up.
const (
	maxPods  = 3000
	maxCheck = time.Second
)

// wouldBeRefused tells which of the pods that are there a standard would not let in.
func (p *Plugin) wouldBeRefused(ctx context.Context, namespace string, std Standard) []string {
	ctx, cancel := context.WithTimeout(ctx, checkTime(ctx))
	defer cancel()
	pods, err := p.cluster.Pods(ctx, namespace)
	if err != nil {
		return []string{"failed to list pods while checking new PodSecurity enforce level"}
	}
	pods = p.distinctFirst(pods)
	checked := min(len(pods), maxPods)
	byReason := map[string][]string{}
	for i, pod := range pods[:checked] {
		if found := p.evaluator.Evaluate(std, &pod.ObjectMeta, &pod.Spec); found != nil {
			byReason[found.Reasons()] = append(byReason[found.Reasons()], pod.Name)
		}
		if ctx.Err() != nil {
			checked = i + 1
			break
		}
	}
	var out []string
	if checked < len(pods) {
		out = append(out, fmt.Sprintf("new PodSecurity enforce level only checked against the first %d of %d existing pods", checked, len(pods)))
	}
	if len(byReason) > 0 {
		out = append(out, fmt.Sprintf("existing pods in namespace %q violate the new PodSecurity enforce level %q", namespace, std))
	}
	var lines []string
	for reason, names := range byReason {
		lines = append(lines, slices.Min(names)+others(len(names)-1)+": "+reason)
	}
	slices.Sort(lines)
	return append(out, lines...)
}

// checkTime is at most half of what the request has left.
func checkTime(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(maxCheck, time.Until(deadline)/2)
	}
	return maxCheck
}

func others(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return " (and 1 other pod)"
	}
	return fmt.Sprintf(" (and %d other pods)", n)
}

// distinctFirst puts one pod of each controller before its siblings, which are
// most likely the same, and leaves out those of an exempt runtime class.
func (p *Plugin) distinctFirst(pods []*corev1.Pod) []*corev1.Pod {
	var first, siblings []*corev1.Pod
	seen := map[types.UID]bool{}
	for _, pod := range pods {
		class := pod.Spec.RuntimeClassName
		if class != nil && *class != "" && slices.Contains(p.cfg.Exempt.RuntimeClasses, *class) {
			continue
		}
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner != nil && seen[owner.UID] {
			siblings = append(siblings, pod)
			continue
		}
		if owner != nil {
			seen[owner.UID] = true
		}
		first = append(first, pod)
	}
	return append(first, siblings...)
}
