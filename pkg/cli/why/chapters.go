package why

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// chapters returns, by kind, the function that reads what may be at fault when
// an object of the kind is.
func chapters() map[string]func(*story, *Object) {
	return map[string]func(*story, *Object){
		"Pod":                                 podStory,
		"ReplicationController":               workloadStory,
		"ReplicaSet.apps":                     workloadStory,
		"StatefulSet.apps":                    workloadStory,
		"DaemonSet.apps":                      workloadStory,
		"Deployment.apps":                     deploymentStory,
		"Job.batch":                           workloadStory,
		"CronJob.batch":                       cronJobStory,
		"Service":                             serviceStory,
		"PersistentVolumeClaim":               claimStory,
		"PersistentVolume":                    volumeStory,
		"ResourceClaim.resource.k8s.io":       deviceClaimStory,
		"Node":                                nodeStory,
		"Namespace":                           namespaceStory,
		"PodDisruptionBudget.policy":          budgetStory,
		"HorizontalPodAutoscaler.autoscaling": autoscalerStory,
		"Ingress.networking.k8s.io":           ingressStory,
		"NetworkPolicy.networking.k8s.io":     uncontrolledStory,
		"APIService.apiregistration.k8s.io":   apiServiceStory,
		"CustomResourceDefinition.apiextensions.k8s.io": nil,
	}
}

func podStory(s *story, o *Object) {
	pod := as[corev1.Pod](o)
	for _, v := range pod.Spec.Volumes {
		name := ""
		if v.PersistentVolumeClaim != nil {
			name = v.PersistentVolumeClaim.ClaimName
		} else if v.Ephemeral != nil {
			name = pod.Name + "-" + v.Name
		}
		if name == "" {
			continue
		}
		if claim := s.get("persistentvolumeclaims", pod.Namespace, name); claim != nil {
			s.tell(claim)
		}
	}
	if !healthy(pod, s.f.Now) {
		deviceStory(s, pod)
	}
	switch {
	case pod.Spec.NodeName != "" && !healthy(pod, s.f.Now):
		if node := s.get("nodes", "", pod.Spec.NodeName); node != nil {
			s.told[nameOf(node)+" "] = true // its other pods play no part
			s.f.story = append(s.f.story, node)
		}
	case pod.Spec.NodeName == "" && len(pod.Spec.SchedulingGates) == 0:
		s.also(s.list("nodes", "", "", "")...)
		if pod.Spec.SchedulerName == corev1.DefaultSchedulerName {
			s.also(s.get("leases.coordination.k8s.io", metav1.NamespaceSystem, "kube-scheduler"))
		}
	}
}

// workloadStory tells of the pods that an object controls.
func workloadStory(s *story, o *Object) {
	pods := s.podsOf(o)
	s.pods(slices.DeleteFunc(pods, func(p *Object) bool {
		ref := metav1.GetControllerOfNoCopy(p)
		return ref == nil || ref.UID != o.GetUID()
	}))
	s.quotas(o)
	s.manager(o)
	if o.GetKind() == "StatefulSet" {
		name, _, _ := unstructured.NestedString(o.Object, "spec", "serviceName")
		if name != "" {
			s.also(s.get("services", o.GetNamespace(), name))
		}
	}
	if o.GetKind() == "DaemonSet" {
		s.also(s.list("nodes", "", "", "")...)
	}
}

func deploymentStory(s *story, o *Object) {
	owned := map[types.UID]bool{}
	for _, set := range s.list("replicasets.apps", o.GetNamespace(), selector(o), "") {
		if ref := metav1.GetControllerOfNoCopy(set); ref == nil || ref.UID != o.GetUID() {
			continue
		}
		owned[set.GetUID()] = true
		replicas, _, _ := unstructured.NestedInt64(set.Object, "spec", "replicas")
		if replicas == 0 {
			s.also(set)
			continue
		}
		s.told[nameOf(set)+" "+set.GetNamespace()] = true // its pods are told below
		s.f.story = append(s.f.story, set)
		s.eventsOf(set)
	}
	s.pods(slices.DeleteFunc(s.podsOf(o), func(p *Object) bool {
		ref := metav1.GetControllerOfNoCopy(p)
		return ref == nil || !owned[ref.UID]
	}))
	s.quotas(o)
	s.manager(o)
}

// quotas reads what may refuse the pods of a workload.
func (s *story) quotas(o *Object) {
	s.also(s.list("resourcequotas", o.GetNamespace(), "", "")...)
}

// manager reads the lease of the controllers if they have not seen the object's
// present generation.
func (s *story) manager(o *Object) {
	seen, known, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	if (known || o.GetKind() != "Job") && seen < o.GetGeneration() {
		s.also(s.get("leases.coordination.k8s.io", metav1.NamespaceSystem, "kube-controller-manager"))
	}
}

// selector returns an object's pod selector; one that selects nothing if it has
// none.
func selector(o *Object) string {
	m, _, _ := unstructured.NestedMap(o.Object, "spec", "selector")
	_, byLabels := m["matchLabels"]
	_, byExpressions := m["matchExpressions"]
	if !byLabels && !byExpressions {
		plain, _, _ := unstructured.NestedStringMap(o.Object, "spec", "selector")
		if len(plain) == 0 {
			return ""
		}
		return labels.SelectorFromSet(plain).String()
	}
	ls := as[metav1.LabelSelector](&Object{Object: m})
	parsed, err := metav1.LabelSelectorAsSelector(ls)
	if err != nil {
		return ""
	}
	return parsed.String()
}

// podsOf lists the pods that an object selects.
func (s *story) podsOf(o *Object) []*Object {
	if sel := selector(o); sel != "" {
		return s.list("pods", o.GetNamespace(), sel, "")
	}
	return nil
}

// pods tells of the pods in the worst state, and knows of the others.
func (s *story) pods(all []*Object) {
	ranks := make(map[*Object]int, len(all))
	for _, o := range all {
		ranks[o] = trouble(o, s.f.Now)
	}
	slices.SortStableFunc(all, func(a, b *Object) int { return cmp.Compare(ranks[b], ranks[a]) })
	for i, o := range all {
		if i < maxPods && ranks[o] > 0 {
			s.tell(o)
		} else {
			s.also(o)
		}
	}
}

// trouble ranks a pod by how much it needs an explanation; 0: none.
func trouble(o *Object, now time.Time) int {
	pod := as[corev1.Pod](o)
	switch {
	case healthy(pod, now):
		return 0
	case pod.DeletionTimestamp != nil:
		return 1
	case pod.Status.Phase == corev1.PodPending:
		return 4
	case pod.Status.Phase == corev1.PodFailed:
		return 2
	}
	return 3
}

// healthy reports whether a pod is ready or has succeeded, without a recent
// restart or one for lack of memory.
func healthy(pod *corev1.Pod, now time.Time) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	if pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.LastTerminationState.Terminated; t != nil && t.Reason == "OOMKilled" || restarted(c, now) {
			return false
		}
	}
	return pod.Status.Phase == corev1.PodRunning && isReady(pod)
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
