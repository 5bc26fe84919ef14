package why

import (
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// cronJobStory tells of the jobs that a CronJob controls, the troubled one
// first.
func cronJobStory(s *story, o *Object) {
	told := 0
	for _, job := range s.list("jobs.batch", o.GetNamespace(), "", "") {
		ref := metav1.GetControllerOfNoCopy(job)
		if ref == nil || ref.UID != o.GetUID() {
			continue
		}
		done, _, _ := unstructured.NestedString(job.Object, "status", "completionTime")
		if done != "" || told == maxPods {
			s.also(job)
			continue
		}
		told++
		s.tell(job)
	}
	s.quotas(o)
	if last, _, _ := unstructured.NestedString(o.Object, "status", "lastScheduleTime"); last == "" {
		s.also(s.get("leases.coordination.k8s.io", metav1.NamespaceSystem, "kube-controller-manager"))
	}
}

// serviceStory tells of the pods that a Service selects; the namespace's other
// pods show which selector would match.
func serviceStory(s *story, o *Object) {
	s.also(s.list("endpointslices.discovery.k8s.io", o.GetNamespace(), discoveryv1.LabelServiceName+"="+o.GetName(), "")...)
	svc := as[corev1.Service](o)
	if len(svc.Spec.Selector) == 0 {
		return
	}
	var ours []*Object
	match := labels.SelectorFromSet(svc.Spec.Selector)
	for _, p := range s.list("pods", o.GetNamespace(), "", "") {
		if match.Matches(labels.Set(p.GetLabels())) {
			ours = append(ours, p)
		} else {
			s.also(p)
		}
	}
	s.pods(ours)
}

func claimStory(s *story, o *Object) {
	claim := as[corev1.PersistentVolumeClaim](o)
	if claim.Spec.VolumeName != "" {
		s.also(s.get("persistentvolumes", "", claim.Spec.VolumeName))
	}
	if claim.Status.Phase == corev1.ClaimBound && claim.DeletionTimestamp == nil {
		return
	}
	class := claim.Spec.StorageClassName
	switch {
	case class == nil:
		s.also(s.list("storageclasses.storage.k8s.io", "", "", "")...)
	case *class != "":
		s.also(s.get("storageclasses.storage.k8s.io", "", *class))
	}
	s.also(s.list("persistentvolumes", "", "", "")...)
	if !s.f.knows("pods", o.GetNamespace()) && (o == s.f.Subject || claim.DeletionTimestamp != nil) {
		s.also(s.list("pods", o.GetNamespace(), "", "")...)
	}
}

func volumeStory(s *story, o *Object) {
	v := as[corev1.PersistentVolume](o)
	if ref := v.Spec.ClaimRef; ref != nil {
		s.also(s.get("persistentvolumeclaims", ref.Namespace, ref.Name))
	}
}

func nodeStory(s *story, o *Object) {
	s.also(s.get("leases.coordination.k8s.io", corev1.NamespaceNodeLease, o.GetName()))
	s.also(s.list("pods", "", "", "spec.nodeName="+o.GetName())...)
	if off, _, _ := unstructured.NestedBool(o.Object, "spec", "unschedulable"); off {
		s.also(s.list("poddisruptionbudgets.policy", "", "", "")...)
	}
}

// namespaceStory reads what keeps a namespace from being deleted, or tells of
// the pods that are in trouble.
func namespaceStory(s *story, o *Object) {
	if o.GetDeletionTimestamp() != nil {
		s.also(s.list("apiservices.apiregistration.k8s.io", "", "", "")...)
		s.also(s.get("leases.coordination.k8s.io", metav1.NamespaceSystem, "kube-controller-manager"))
		return
	}
	s.pods(s.list("pods", o.GetName(), "", ""))
}

func budgetStory(s *story, o *Object) { s.pods(s.podsOf(o)) }

func autoscalerStory(s *story, o *Object) {
	a := as[autoscalingv2.HorizontalPodAutoscaler](o)
	s.warnings(o)
	ref := a.Spec.ScaleTargetRef
	group, _, ok := strings.Cut(ref.APIVersion, "/")
	if !ok {
		group = ""
	}
	if target := s.get(withGroup(strings.ToLower(ref.Kind), group), a.Namespace, ref.Name); target != nil {
		s.tell(target)
	}
	if api := s.get("apiservices.apiregistration.k8s.io", "", metricsAPI); api != nil {
		s.tell(api)
	}
}

// metricsAPI is the name of the APIService of the resource metrics.
const metricsAPI = "v1beta1.metrics.k8s.io"

func ingressStory(s *story, o *Object) {
	s.warnings(o)
	ing := as[networkingv1.Ingress](o)
	if class := ing.Spec.IngressClassName; class != nil {
		s.also(s.get("ingressclasses.networking.k8s.io", "", *class))
	}
	seen := map[string]bool{}
	for _, b := range backends(ing) {
		if b.Service == nil || seen[b.Service.Name] {
			continue
		}
		seen[b.Service.Name] = true
		if svc := s.get("services", o.GetNamespace(), b.Service.Name); svc != nil {
			s.tell(svc)
		}
	}
	for _, t := range ing.Spec.TLS {
		if t.SecretName != "" {
			s.get("secrets", o.GetNamespace(), t.SecretName) // only whether it exists
		}
	}
}

// backends returns all backends of an Ingress.
func backends(ing *networkingv1.Ingress) []networkingv1.IngressBackend {
	var out []networkingv1.IngressBackend
	if ing.Spec.DefaultBackend != nil {
		out = append(out, *ing.Spec.DefaultBackend)
	}
	for _, r := range ing.Spec.Rules {
		if r.HTTP == nil {
			continue
		}
		for _, p := range r.HTTP.Paths {
			out = append(out, p.Backend)
		}
	}
	return out
}

func uncontrolledStory(s *story, o *Object) {
	s.warnings(o)
	if o.GetKind() == "NetworkPolicy" {
		raw, _, _ := unstructured.NestedMap(o.Object, "spec", "podSelector")
		sel, err := metav1.LabelSelectorAsSelector(as[metav1.LabelSelector](&Object{Object: raw}))
		if err == nil {
			s.also(s.list("pods", o.GetNamespace(), sel.String(), "")...)
		}
	}
}

// warnings asks the server, by a dry run, what it says to a copy of the object.
func (s *story) warnings(o *Object) {
	if !s.spend("a dry run of " + nameOf(o)) {
		return
	}
	clone := &Object{Object: map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind()}}
	clone.SetNamespace(o.GetNamespace())
	clone.SetGenerateName("why-")
	if spec, ok := o.Object["spec"]; ok {
		clone.Object["spec"] = spec
	}
	texts, err := s.r.Warnings(s.ctx, clone)
	if s.note(err, "a dry run of "+nameOf(o), o.GetNamespace()) {
		s.f.warnings = append(s.f.warnings, texts...)
	}
}

func apiServiceStory(s *story, o *Object) {
	name, _, _ := unstructured.NestedString(o.Object, "spec", "service", "name")
	namespace, _, _ := unstructured.NestedString(o.Object, "spec", "service", "namespace")
	if name == "" {
		return
	}
	if svc := s.get("services", namespace, name); svc != nil {
		s.tell(svc)
	}
}

// deleting reads what keeps an object that is being deleted.
func (s *story) deleting(o *Object) {
	for _, name := range o.GetFinalizers() {
		switch name {
		case metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents:
			s.also(s.get("leases.coordination.k8s.io", metav1.NamespaceSystem, "kube-controller-manager"))
			if o.GetNamespace() != "" && !s.f.knows("pods", o.GetNamespace()) {
				s.also(s.list("pods", o.GetNamespace(), "", "")...)
			}
		}
	}
}
