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
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/request"
	"podium/pkg/scheme"
)

// plugin is the state of PodSecurity.
type plugin struct {
	admission.Host
	cfg       Config
	evaluator policy.Evaluator
	metrics   *metrics
}

// New returns the plugin.
func New(h admission.Host, cfg Config) admission.Plugin {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		panic(err) // the library's own checks are valid
	}
	p := &plugin{Host: h, cfg: cfg.complete(), evaluator: evaluator, metrics: newMetrics(h.Metrics)}
	return admission.Plugin{Operations: []admission.Operation{admission.Create, admission.Update}, Validate: p.validate}
}

// auditError is the key of the audit annotation with what went wrong, below the
// prefix of all of them.
const auditError = "error"

func annotate(ctx context.Context, key, value string) {
	request.Annotate(ctx, api.AuditAnnotationPrefix+key, value)
}

// check evaluates a pod against a standard.
func (p *plugin) check(std api.LevelVersion, meta *metav1.ObjectMeta, spec *corev1.PodSpec) policy.AggregateCheckResult {
	return policy.AggregateCheckResults(p.evaluator.EvaluatePod(std, meta, spec))
}

// validate refuses pods that violate their namespace's policy, warns of
// violations, and annotates the audit event.
func (p *plugin) validate(ctx context.Context, a *admission.Attributes) error {
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

// pod evaluates a pod against its namespace's policy on create, and on an
// update that changes what the checks depend on.
func (p *plugin) pod(ctx context.Context, a *admission.Attributes, pod *corev1.Pod) error {
	switch a.Subresource {
	case "exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status":
		return nil
	}
	if p.exempt(ctx, a) {
		return nil
	}
	demanded, problems, err := p.demands(ctx, a.Namespace)
	if err != nil {
		p.metrics.failed(true, a)
		annotate(ctx, auditError, err.Error())
		return apierrors.NewInternalError(err)
	}
	if problems == nil && demanded.FullyPrivileged() {
		p.metrics.evaluated(allow, demanded.Enforce, enforce, a)
		annotate(ctx, api.EnforcedPolicyAnnotationKey, api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()}.String())
		return nil
	}
	if old, ok := a.Old.(*corev1.Pod); ok && !matters(pod, old) {
		return nil
	}
	return p.evaluate(ctx, a, demanded, problems, &pod.ObjectMeta, &pod.Spec, true)
}

// template warns of violations by the pods that a workload's template creates.
// It admits the workload: only the pods themselves are refused.
func (p *plugin) template(ctx context.Context, a *admission.Attributes, meta *metav1.ObjectMeta, spec *corev1.PodSpec) error {
	if p.exempt(ctx, a) {
		return nil
	}
	demanded, problems, err := p.demands(ctx, a.Namespace)
	if err != nil {
		p.metrics.failed(true, a)
		annotate(ctx, auditError, err.Error())
		return nil
	}
	if problems == nil && demanded.Warn.Level == api.LevelPrivileged && demanded.Audit.Level == api.LevelPrivileged {
		return nil
	}
	return p.evaluate(ctx, a, demanded, problems, meta, spec, false)
}

// demands returns the policy of a namespace. problems lists invalid labels; the
// policy is usable nevertheless and enforces the strictest standard in their
// place.
func (p *plugin) demands(ctx context.Context, name string) (demanded api.Policy, problems, err error) {
	ns, err := admission.Namespace(ctx, p.Objects, name)
	if err != nil || ns == nil {
		return demanded, nil, fmt.Errorf("failed to lookup namespace %q", name)
	}
	demanded, errs := api.PolicyToEvaluate(ns.Labels, p.cfg.Defaults)
	if len(errs) > 0 {
		problems = errs.ToAggregate()
	}
	return demanded, problems, nil
}

// evaluate evaluates a pod or a pod template against the policy. It returns an
// error only if enforcing is set.
func (p *plugin) evaluate(ctx context.Context, a *admission.Attributes, demanded api.Policy, problems error, meta *metav1.ObjectMeta, spec *corev1.PodSpec, enforcing bool) error {
	if p.exemptClass(spec) {
		p.metrics.exempted(a)
		annotate(ctx, api.ExemptionReasonAnnotationKey, "runtimeClass")
		return nil
	}
	if problems != nil {
		p.metrics.failed(false, a)
		annotate(ctx, auditError, fmt.Sprintf("Failed to parse policy: %v", problems))
	}
	refused := policy.AggregateCheckResult{Allowed: true}
	if enforcing {
		annotate(ctx, api.EnforcedPolicyAnnotationKey, demanded.Enforce.String())
		refused = p.check(demanded.Enforce, meta, spec)
		decision := allow
		if !refused.Allowed {
			decision = deny
		}
		p.metrics.evaluated(decision, demanded.Enforce, enforce, a)
	}
	if found := p.check(demanded.Audit, meta, spec); !found.Allowed {
		annotate(ctx, api.AuditViolationsAnnotationKey, would(demanded.Audit, found))
		p.metrics.evaluated(deny, demanded.Audit, audit, a)
	}
	if !refused.Allowed {
		return admission.Forbidden(a, "violates PodSecurity %q: %s", demanded.Enforce, refused.ForbiddenDetail())
	}
	if found := p.check(demanded.Warn, meta, spec); !found.Allowed {
		request.Warn(ctx, would(demanded.Warn, found))
		p.metrics.evaluated(deny, demanded.Warn, warn, a)
	}
	return nil
}

// exemptClass reports whether the pod's runtime class is exempt.
func (p *plugin) exemptClass(spec *corev1.PodSpec) bool {
	class := spec.RuntimeClassName
	return class != nil && *class != "" && slices.Contains(p.cfg.Exempt.RuntimeClasses, *class)
}

func would(s api.LevelVersion, found policy.AggregateCheckResult) string {
	return fmt.Sprintf("would violate PodSecurity %q: %s", s, found.ForbiddenDetail())
}

// exempt reports whether the namespace or the user is exempt.
func (p *plugin) exempt(ctx context.Context, a *admission.Attributes) bool {
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
	annotate(ctx, api.ExemptionReasonAnnotationKey, why)
	return true
}

// matters reports whether an update must be evaluated. Updates can only change
// images and add ephemeral containers; other changes leave the pod as admitted.
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

// template returns the pod template of a workload, nil for any other object.
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
