package registry

import (
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/request"
	"podium/pkg/podspec"
	"podium/pkg/scheme"
)

func pods(k *scheme.Kind, cfg Config) *Kind {
	kind := Of[*corev1.Pod]{
		Default:                  defaultPod,
		Prepare:                  preparePod,
		Validate:                 validatePrivileged(cfg, validatePod, podSpec),
		Warnings:                 func(new, _ *corev1.Pod) []string { return podspec.Warnings(&new.Spec, field.NewPath("spec")) },
		Columns:                  podColumns(),
		Row:                      podRow,
		Fields:                   podFields,
		Indexed:                  []string{"spec.nodeName"},
		BeforeDelete:             deletePod,
		AllowUnconditionalUpdate: true,
		ReturnDeleted:            true,
		Subresources: []*Subresource{
			part(k, "status", preparePodStatus, validatePodStatus),
			part(k, "ephemeralcontainers", prepareEphemeral, validatePrivileged(cfg, validateEphemeral, podSpec)),
			part(k, "resize", prepareResize, validateResize),
			podBinding(cfg),
			podEviction(cfg),
		},
	}
	for _, s := range []struct {
		name, kind string
		connect    Connect
		methods    []string
	}{
		{"log", "Pod", cfg.Streams.PodLog, []string{"GET"}},
		{"exec", "PodExecOptions", cfg.Streams.PodExec, []string{"GET", "POST"}},
		{"attach", "PodAttachOptions", cfg.Streams.PodAttach, []string{"GET", "POST"}},
		{"portforward", "PodPortForwardOptions", cfg.Streams.PodPortForward, []string{"GET", "POST"}},
		{"proxy", "PodProxyOptions", cfg.Streams.PodProxy, proxyMethods()},
	} {
		kind.Subresources = append(kind.Subresources, stream(s.name, s.kind, s.connect, s.methods)...)
	}
	return kind.Kind(k)
}

func podSpec(p *corev1.Pod) (*corev1.PodSpec, *field.Path) { return &p.Spec, field.NewPath("spec") }

// stream returns a streaming subresource, or an empty slice if connect is nil.
func stream(name, kind string, connect Connect, methods []string) []*Subresource {
	if connect == nil {
		return nil
	}
	return []*Subresource{{Name: name, GVK: corev1.SchemeGroupVersion.WithKind(kind), Connect: connect, Methods: methods}}
}

func proxyMethods() []string {
	return []string{"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"}
}

func defaultPod(pod *corev1.Pod) {
	podspec.DefaultPod(pod)
	// podIP and podIPs, and hostIP and hostIPs, repeat one address; a client may
	// set only one of each.
	s := &pod.Status
	if s.PodIP != "" && len(s.PodIPs) == 0 {
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	} else if s.PodIP == "" && len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
	if s.HostIP != "" && len(s.HostIPs) == 0 {
		s.HostIPs = []corev1.HostIP{{IP: s.HostIP}}
	}
}

func preparePod(ctx context.Context, _ Backend, new, old *corev1.Pod) error {
	if old != nil {
		new.Status = old.Status
		new.Generation = nextGeneration(&old.ObjectMeta, apiequality.Semantic.DeepEqual(new.Spec, old.Spec))
		return nil
	}
	for _, text := range podspec.AppArmorFields(new.Annotations, &new.Spec) {
		request.Warn(ctx, text)
	}
	new.Generation = 1
	new.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: podspec.QOSClass(&new.Spec)}
	if len(new.Spec.SchedulingGates) > 0 {
		new.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
			Message: "Scheduling is blocked due to non-empty scheduling gates",
		}}
	}
	podspec.MergeLabelKeys(new)
	return nil
}

// nextGeneration returns the generation after an update; same means that the spec
// has not changed.
func nextGeneration(old *metav1.ObjectMeta, same bool) int64 {
	if same {
		return old.Generation
	}
	return old.Generation + 1
}

func validatePod(new, old *corev1.Pod) field.ErrorList {
	if old == nil {
		return podspec.ValidatePod(new)
	}
	path, metadata := field.NewPath("spec"), field.NewPath("metadata")
	errs := podspec.ValidateAppArmorUpdate(new.Annotations, old.Annotations, metadata.Child("annotations"))
	errs = append(errs, podspec.ValidateMirrorUpdate(new.Annotations, old.Annotations, metadata.Child("annotations"))...)
	if apiequality.Semantic.DeepEqual(new.Spec, old.Spec) {
		return errs
	}
	errs = append(errs, podspec.Validate(&new.Spec, path)...)
	return append(errs, podspec.ValidateUpdate(&new.Spec, &old.Spec, path)...)
}

func podFields(pod *corev1.Pod) fields.Set {
	ip := pod.Status.PodIP
	if ip == "" && len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	return fields.Set{
		"spec.nodeName":            pod.Spec.NodeName,
		"spec.restartPolicy":       string(pod.Spec.RestartPolicy),
		"spec.schedulerName":       pod.Spec.SchedulerName,
		"spec.serviceAccountName":  pod.Spec.ServiceAccountName,
		"spec.hostNetwork":         strconv.FormatBool(pod.Spec.HostNetwork),
		"status.phase":             string(pod.Status.Phase),
		"status.podIP":             ip,
		"status.podIPs":            ip,
		"status.nominatedNodeName": pod.Status.NominatedNodeName,
	}
}

// deletePod sets the grace period and the deletion timestamp. A pod that is not
// bound to a node, or has terminated, gets no grace period. A second delete can
// only shorten it.
func deletePod(pod *corev1.Pod, opts *metav1.DeleteOptions, now time.Time) (keep bool, err error) {
	if pod.DeletionTimestamp != nil {
		return shortenGrace(pod, opts), nil
	}
	grace := int64(0)
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = *s
	}
	if opts.GracePeriodSeconds != nil {
		grace = *opts.GracePeriodSeconds
	}
	if grace < 0 {
		grace = 1
	}
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		grace = 0
	}
	end := metav1.NewTime(now.Add(time.Duration(grace) * time.Second)).Rfc3339Copy()
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &end, &grace
	if pod.Generation > 0 {
		pod.Generation++
	}
	return grace > 0, nil
}

// shortenGrace handles a delete of a pod that is already terminating: it may
// shorten the grace period. keep is false if the pod can be removed at once.
func shortenGrace(pod *corev1.Pod, opts *metav1.DeleteOptions) (keep bool) {
	left := pod.DeletionGracePeriodSeconds
	if left == nil {
		return false
	}
	if opts.GracePeriodSeconds == nil || *opts.GracePeriodSeconds >= *left {
		return *left > 0
	}
	grace := max(*opts.GracePeriodSeconds, 0)
	end := metav1.NewTime(pod.DeletionTimestamp.Add(time.Duration(grace-*left) * time.Second))
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &end, &grace
	return grace > 0
}

func preparePodStatus(new, old *corev1.Pod) {
	new.Spec = old.Spec
	new.Generation = old.Generation
	new.OwnerReferences = old.OwnerReferences
	new.Status.QOSClass = old.Status.QOSClass
	new.Status.VolumeHealth = nil // upstream drops it, too, unless a feature gate is on
}

func validatePodStatus(new, old *corev1.Pod) field.ErrorList {
	path := field.NewPath("status")
	errs := podspec.ValidateMirrorUpdate(new.Annotations, old.Annotations, field.NewPath("metadata", "annotations"))
	for i, c := range new.Status.Conditions {
		errs = append(errs, validateConditionType(string(c.Type), path.Child("conditions").Index(i).Child("type"))...)
	}
	if n := new.Status.NominatedNodeName; n != "" && n != old.Status.NominatedNodeName {
		for _, m := range apivalidation.NameIsDNSSubdomain(n, false) {
			errs = append(errs, field.Invalid(path.Child("nominatedNodeName"), n, m))
		}
	}
	errs = append(errs, validateContainerStates(new.Status.ContainerStatuses, old.Status.ContainerStatuses, old.Spec.RestartPolicy, path.Child("containerStatuses"))...)
	errs = append(errs, validateContainerStates(new.Status.InitContainerStatuses, old.Status.InitContainerStatuses, old.Spec.RestartPolicy, path.Child("initContainerStatuses"))...)
	errs = append(errs, validateAllocatedResources(new, old, path)...)
	errs = append(errs, podspec.ValidateClaimStatuses(new.Status.ResourceClaimStatuses, old.Status.ResourceClaimStatuses, old.Spec.ResourceClaims, path.Child("resourceClaimStatuses"))...)
	errs = append(errs, podspec.ValidateExtendedClaimStatus(new.Status.ExtendedResourceClaimStatus, old.Status.ExtendedResourceClaimStatus, &old.Spec, path.Child("extendedResourceClaimStatus"))...)
	return append(errs, validatePodIPs(&new.Status, path.Child("podIPs"))...)
}

// validateContainerStates checks that terminated containers which the restart
// policy does not restart remain terminated.
func validateContainerStates(new, old []corev1.ContainerStatus, policy corev1.RestartPolicy, path *field.Path) field.ErrorList {
	if policy == corev1.RestartPolicyAlways {
		return nil
	}
	var errs field.ErrorList
	for i := range old {
		ended := old[i].State.Terminated
		if ended == nil || ended.ExitCode != 0 && policy == corev1.RestartPolicyOnFailure {
			continue
		}
		for j := range new {
			if new[j].Name == old[i].Name && new[j].State.Terminated == nil {
				errs = append(errs, field.Forbidden(path.Index(i).Child("state"), "may not be transitioned to non-terminated state"))
			}
		}
	}
	return errs
}
