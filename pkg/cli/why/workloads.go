package why

import (
	"fmt"
	"regexp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
)

// rollout explains Deployments that do not have the wanted pods.
func rollout(f *Facts, d *appsv1.Deployment) (out []Finding) {
	want := replicas(d.Spec.Replicas)
	if d.Spec.Paused {
		out = append(out, found(likely-5, "the Deployment is paused: changes of its template are not rolled out").by("spec.paused").fix("podium rollout resume deployment/%s%s", d.Name, in(d.Namespace)))
	}
	if want == 0 && d.DeletionTimestamp == nil {
		out = append(out, found(likely, "the Deployment is scaled to 0 replicas").by("spec.replicas: 0").fix("podium scale deployment/%s --replicas=1%s", d.Name, in(d.Namespace)))
	}
	for _, c := range d.Status.Conditions {
		shown := fmt.Sprintf("condition %s=%s (%s): %s", c.Type, c.Status, c.Reason, c.Message)
		switch {
		case c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue:
			out = append(out, refused(c.Message, "ReplicaSet", d.Namespace).by(shown))
		case c.Type == appsv1.DeploymentProgressing && c.Reason == "ProgressDeadlineExceeded":
			out = append(out, found(effect+10, "the rollout has not progressed for %d s: %d of %d new pods are ready", deadline(d), d.Status.ReadyReplicas, want).by(shown).
				fix("podium rollout undo deployment/%s%s", d.Name, in(d.Namespace)))
		}
	}
	if d.Status.AvailableReplicas < want && d.Status.ObservedGeneration >= d.Generation {
		out = append(out, found(effect, "%d of %d pods are available", d.Status.AvailableReplicas, want).by("status.availableReplicas").fix("podium rollout status deployment/%s%s", d.Name, in(d.Namespace)))
	}
	return out
}

func deadline(d *appsv1.Deployment) int32 {
	if d.Spec.ProgressDeadlineSeconds == nil {
		return 600
	}
	return *d.Spec.ProgressDeadlineSeconds
}

func replicas(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

func replicaSetCreates(f *Facts, s *appsv1.ReplicaSet) []Finding {
	for _, c := range s.Status.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
			return []Finding{refused(c.Message, "ReplicaSet", s.Namespace).by(fmt.Sprintf("condition ReplicaFailure=True (%s): %s", c.Reason, c.Message))}
		}
	}
	return creates(f, "ReplicaSet", s.Name, s.Namespace, s.Status.Replicas < replicas(s.Spec.Replicas))
}

func controllerCreates(f *Facts, c *corev1.ReplicationController) []Finding {
	return creates(f, "ReplicationController", c.Name, c.Namespace, c.Status.Replicas < replicas(c.Spec.Replicas))
}

// creates explains an object that lacks pods, by its FailedCreate events.
func creates(f *Facts, kind, name, namespace string, lacks bool) []Finding {
	e := f.event(kind, name, "FailedCreate")
	if e == nil || !lacks {
		return nil
	}
	return []Finding{refused(e.Message, kind, namespace).by(f.said(e))}
}

var (
	exceeded = regexp.MustCompile(`exceeded quota: ([^,]+), requested: (.*), used: (.*), limited: (.*)$`)
	limited  = regexp.MustCompile(`failed quota: ([^:]+): must specify (.*)$`)
	webhook  = regexp.MustCompile(`failed calling webhook "([^"]+)"`)
	denied   = regexp.MustCompile(`admission webhook "([^"]+)" denied the request`)
	policy   = regexp.MustCompile(`ValidatingAdmissionPolicy '([^']+)'`)
	security = regexp.MustCompile(`violates PodSecurity "([^"]+)": (.*)$`)
	account  = regexp.MustCompile(`error looking up service account [^/]+/([^:]+)`)
	class    = regexp.MustCompile(`no PriorityClass with name (\S+) was found`)
)

// refused explains the API server's refusal of a pod or another dependent.
func refused(message, kind, namespace string) Finding {
	match := func(r *regexp.Regexp) []string { return r.FindStringSubmatch(message) }
	switch {
	case match(exceeded) != nil:
		m := match(exceeded)
		return found(root, "the ResourceQuota %q refuses more pods: requested %s, used %s, limited to %s", m[1], m[2], m[3], m[4]).
			fix("podium describe resourcequota %s%s, then raise it or lower the requests", m[1], in(namespace))
	case match(limited) != nil:
		m := match(limited)
		return found(root, "the ResourceQuota %q demands that pods set %s", m[1], oneLine(m[2])).fix("set the requests and limits, or add a LimitRange with defaults%s", in(namespace))
	case match(security) != nil:
		m := match(security)
		return found(root, "the Pod Security level %q of the namespace refuses the pods: %s", m[1], oneLine(m[2])).
			fix("correct the securityContext, or: podium label namespace %s pod-security.kubernetes.io/enforce=LEVEL --overwrite", namespace)
	case match(webhook) != nil:
		return found(root, "the admission webhook %q does not answer", match(webhook)[1]).fix("podium get validatingwebhookconfigurations,mutatingwebhookconfigurations; repair its Service, or delete the configuration")
	case match(denied) != nil:
		return found(root, "the admission webhook %q refuses the pods: %s", match(denied)[1], oneLine(tail(message, "denied the request: ")))
	case match(policy) != nil:
		return found(root, "the ValidatingAdmissionPolicy %q refuses the pods: %s", match(policy)[1], oneLine(tail(message, "denied request: "))).fix("correct the template: podium get validatingadmissionpolicy %s -o yaml", match(policy)[1])
	case match(account) != nil || strings.Contains(message, "serviceaccount") && strings.Contains(message, "not found"):
		name := "?"
		if m := match(account); m != nil {
			name = m[1]
		}
		return found(root, "the ServiceAccount %q of the pods does not exist", name).fix("podium create serviceaccount %s%s", name, in(namespace))
	case match(class) != nil:
		return found(root, "the PriorityClass %q of the pods does not exist", match(class)[1]).fix("podium create priorityclass %s --value=1000", match(class)[1])
	case strings.Contains(message, "maximum") || strings.Contains(message, "minimum"):
		return found(root, "a LimitRange refuses the pods: %s", oneLine(tail(message, "is forbidden: "))).fix("podium describe limitrange%s", in(namespace))
	}
	return found(root, "the API server refuses the pods: %s", oneLine(tail(message, "Error creating: "))).fix("correct the template of the %s", kind)
}

// tail returns what follows the last mark in text; all of it without one.
func tail(text, mark string) string {
	if i := strings.LastIndex(text, mark); i >= 0 {
		return text[i+len(mark):]
	}
	return text
}

func statefulSet(f *Facts, s *appsv1.StatefulSet) (out []Finding) {
	want := replicas(s.Spec.Replicas)
	out = append(out, creates(f, "StatefulSet", s.Name, s.Namespace, s.Status.Replicas < want)...)
	if f.missing("services", s.Namespace, s.Spec.ServiceName) && s.Spec.ServiceName != "" {
		out = append(out, found(effect, "the Service %q of the StatefulSet does not exist: its pods have no DNS names", s.Spec.ServiceName).by("spec.serviceName").
			fix("create a Service %s with clusterIP None", s.Spec.ServiceName))
	}
	if s.Status.ReadyReplicas < want && s.Status.ObservedGeneration >= s.Generation {
		note := ""
		if s.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
			note = ", one after the other: the first that is not ready holds up the rest"
		}
		out = append(out, found(effect, "%d of %d pods are ready%s", s.Status.ReadyReplicas, want, note).by("status.readyReplicas"))
	}
	if s.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType && s.Status.UpdateRevision != s.Status.CurrentRevision {
		out = append(out, found(likely, "the update strategy is OnDelete: pods get the new template only when someone deletes them").by("spec.updateStrategy.type").
			fix("podium delete pods -l SELECTOR%s, or set RollingUpdate", in(s.Namespace)))
	}
	return out
}

func daemonSet(f *Facts, d *appsv1.DaemonSet) (out []Finding) {
	s := d.Status
	out = append(out, creates(f, "DaemonSet", d.Name, d.Namespace, s.CurrentNumberScheduled < s.DesiredNumberScheduled)...)
	switch {
	case s.ObservedGeneration < d.Generation:
	case s.DesiredNumberScheduled == 0:
		out = append(out, found(likely, "no node takes the DaemonSet's pods: its nodeSelector, affinity or tolerations fit none").by("status.desiredNumberScheduled: 0").
			fix("podium get nodes --show-labels; podium edit daemonset/%s%s", d.Name, in(d.Namespace)))
	case s.NumberReady < s.DesiredNumberScheduled:
		out = append(out, found(effect, "%d of %d pods are ready", s.NumberReady, s.DesiredNumberScheduled).by("status.numberReady"))
	}
	return out
}

// budget explains disruption budgets that allow no eviction.
func budget(f *Facts, b *policyv1.PodDisruptionBudget) []Finding {
	s := b.Status
	shown := fmt.Sprintf("status: %d of %d pods are healthy, %d must be", s.CurrentHealthy, s.ExpectedPods, s.DesiredHealthy)
	switch {
	case s.ObservedGeneration < b.Generation || s.DisruptionsAllowed > 0:
		return nil
	case s.ExpectedPods == 0:
		return []Finding{found(likely, "the budget's selector matches no pods").by("status.expectedPods: 0").fix("podium get pods --show-labels%s; correct spec.selector", in(b.Namespace))}
	case s.CurrentHealthy >= s.ExpectedPods && s.DesiredHealthy >= s.ExpectedPods:
		return []Finding{found(root, "the budget can never allow an eviction: it demands that all its pods (%d) are healthy", s.ExpectedPods).by(shown).
			fix("run more replicas, or lower minAvailable (raise maxUnavailable): podium edit pdb %s%s", b.Name, in(b.Namespace))}
	}
	return []Finding{found(likely-5, "the budget allows no eviction: %d of %d pods are healthy, and %d must stay so", s.CurrentHealthy, s.ExpectedPods, s.DesiredHealthy).by(shown)}
}
