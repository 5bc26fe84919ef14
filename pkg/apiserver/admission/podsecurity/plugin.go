package podsecurity

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

// Cluster is what the plugin asks about.
type Cluster struct {
	Namespace admission.Namespaces
	Pods      func(ctx context.Context, namespace string) ([]*corev1.Pod, error) // not to be modified
}

// Plugin is the admission plugin PodSecurity.
type Plugin struct {
	cfg       Config
	cluster   Cluster
	evaluator *Evaluator
	metrics   *Metrics
}

// New makes the plugin; its Validate is the rule. Without metrics nothing is
// counted.
func New(cfg Config, cluster Cluster, metrics *Metrics) *Plugin {
	return &Plugin{cfg: cfg, cluster: cluster, evaluator: NewEvaluator(), metrics: metrics}
}

// Keys of audit annotations, below the prefix of the labels.
const (
	auditExempt     = "exempt"
	auditPolicy     = "enforce-policy"
	auditViolations = "audit-violations"
	auditError      = "error"
)

func annotate(ctx context.Context, key, value string) { request.Annotate(ctx, prefix+key, value) }

// Validate refuses pods that their namespace does not allow, and warns of and
// writes down what it wants to know.
func (p *Plugin) Validate(ctx context.Context, a *admission.Attributes) error {
	if a.Operation != admission.Create && a.Operation != admission.Update {
		return nil
	}
	switch obj := a.Object.(type) {
	case *corev1.Namespace:
		return p.namespace(ctx, a, obj)
	case *corev1.Pod:
		return p.pod(ctx, a, obj)
	}
	if meta, spec := template(a.Object); spec != nil && a.Subresource == "" {
		return p.template(ctx, a, meta, spec)
	}
	return nil
}

// pod holds a pod to its namespace's policy when it is made, and when what
// changes matters.
func (p *Plugin) pod(ctx context.Context, a *admission.Attributes, pod *corev1.Pod) error {
	switch a.Subresource {
	case "exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status":
		return nil
	}
	if p.exempt(ctx, a) {
		return nil
	}
	policy, problems, err := p.policy(ctx, a.Namespace)
	if err != nil {
		p.metrics.failed(true, a)
		annotate(ctx, auditError, err.Error())
		return apierrors.NewInternalError(err)
	}
	if problems == nil && policy.privileged() {
		p.metrics.evaluated(allow, policy.Enforce, enforce, a)
		annotate(ctx, auditPolicy, Standard{}.String())
		return nil
	}
	if old, ok := a.Old.(*corev1.Pod); ok && !matters(pod, old) {
		return nil
	}
	return p.evaluate(ctx, a, policy, problems, &pod.ObjectMeta, &pod.Spec, true)
}

// template tells of the pods to come; they are refused only when they come.
func (p *Plugin) template(ctx context.Context, a *admission.Attributes, meta *metav1.ObjectMeta, spec *corev1.PodSpec) error {
	if p.exempt(ctx, a) {
		return nil
	}
	policy, problems, err := p.policy(ctx, a.Namespace)
	if err != nil {
		p.metrics.failed(true, a)
		annotate(ctx, auditError, err.Error())
		return nil
	}
	if problems == nil && policy.Warn.Level == Privileged && policy.Audit.Level == Privileged {
		return nil
	}
	return p.evaluate(ctx, a, policy, problems, meta, spec, false)
}

// policy is a namespace's; problems tells of labels that are not understood.
func (p *Plugin) policy(ctx context.Context, name string) (policy Policy, problems, err error) {
	ns, err := p.cluster.Namespace(ctx, name, false)
	if err == nil && ns == nil {
		ns, err = p.cluster.Namespace(ctx, name, true)
	}
	if err != nil || ns == nil {
		return policy, nil, fmt.Errorf("failed to lookup namespace %q", name)
	}
	policy, errs := PolicyOf(ns.Labels, p.cfg.Defaults)
	if len(errs) > 0 {
		problems = errs.ToAggregate()
	}
	return policy, problems, nil
}

func (p *Plugin) evaluate(ctx context.Context, a *admission.Attributes, policy Policy, problems error, meta *metav1.ObjectMeta, spec *corev1.PodSpec, enforcing bool) error {
	if class := spec.RuntimeClassName; class != nil && *class != "" && slices.Contains(p.cfg.Exempt.RuntimeClasses, *class) {
		p.metrics.exempted(a)
		annotate(ctx, auditExempt, "runtimeClass")
		return nil
	}
	if problems != nil {
		p.metrics.failed(false, a)
		annotate(ctx, auditError, fmt.Sprintf("Failed to parse policy: %v", problems))
	}
	var refused Violations
	if enforcing {
		annotate(ctx, auditPolicy, policy.Enforce.String())
		refused = p.evaluator.Evaluate(policy.Enforce, meta, spec)
		p.metrics.evaluated(decisionOf(refused), policy.Enforce, enforce, a)
	}
	if found := p.evaluator.Evaluate(policy.Audit, meta, spec); found != nil {
		annotate(ctx, auditViolations, would(policy.Audit, found))
		p.metrics.evaluated(deny, policy.Audit, audit, a)
	}
	if refused != nil {
		return admission.Forbidden(a, "violates PodSecurity %q: %s", policy.Enforce, refused)
	}
	if found := p.evaluator.Evaluate(policy.Warn, meta, spec); found != nil {
		request.Warn(ctx, would(policy.Warn, found))
		p.metrics.evaluated(deny, policy.Warn, warn, a)
	}
	return nil
}

func would(s Standard, found Violations) string {
	return fmt.Sprintf("would violate PodSecurity %q: %s", s, found)
}

// exempt: the namespace or the user is held to nothing.
func (p *Plugin) exempt(ctx context.Context, a *admission.Attributes) bool {
	why := ""
	switch {
	case slices.Contains(p.cfg.Exempt.Namespaces, a.Namespace):
		why = "namespace"
	case a.User != nil && slices.Contains(p.cfg.Exempt.Usernames, a.User.Name):
		why = "user"
	default:
		return false
	}
	p.metrics.exempted(a)
	annotate(ctx, auditExempt, why)
	return true
}

// matters: an update of a pod can only bring other images and more ephemeral
// containers; anything else leaves it as it was allowed.
func matters(pod, old *corev1.Pod) bool {
	if len(pod.Spec.Containers) != len(old.Spec.Containers) || len(pod.Spec.InitContainers) != len(old.Spec.InitContainers) {
		return true
	}
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Image != old.Spec.Containers[i].Image {
			return true
		}
	}
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Image != old.Spec.InitContainers[i].Image {
			return true
		}
	}
	return slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool {
		return !slices.ContainsFunc(old.Spec.EphemeralContainers, func(o corev1.EphemeralContainer) bool {
			return o.Name == c.Name && o.Image == c.Image
		})
	})
}

// template is what an object makes pods from; nil if it makes none.
func template(obj scheme.Object) (*metav1.ObjectMeta, *corev1.PodSpec) {
	var t *corev1.PodTemplateSpec
	switch o := obj.(type) {
	case *corev1.PodTemplate:
		t = &o.Template
	case *corev1.ReplicationController:
		t = o.Spec.Template
	case *appsv1.ReplicaSet:
		t = &o.Spec.Template
	case *appsv1.Deployment:
		t = &o.Spec.Template
	case *appsv1.DaemonSet:
		t = &o.Spec.Template
	case *appsv1.StatefulSet:
		t = &o.Spec.Template
	case *batchv1.Job:
		t = &o.Spec.Template
	case *batchv1.CronJob:
		t = &o.Spec.JobTemplate.Spec.Template
	}
	if t == nil {
		return nil, nil
	}
	return &t.ObjectMeta, &t.Spec
}
