package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Evaluator computes the usage of the objects of one resource.
type Evaluator struct {
	Resource schema.GroupResource
	count    corev1.ResourceName // the name of the number of objects: count/secrets
	plain    corev1.ResourceName // the older name of the same: secrets; "": none
}

// For returns the evaluator of a resource.
func For(gr schema.GroupResource) Evaluator {
	e := Evaluator{Resource: gr, count: corev1.ResourceName(countPrefix + gr.String())}
	if gr.Group == "" && !strings.Contains(gr.Resource, ".") && slices.Contains(countedNames(), corev1.ResourceName(gr.Resource)) {
		e.plain = corev1.ResourceName(gr.Resource)
	}
	return e
}

// Limiting returns those of the names that objects of the resource use, sorted.
func (e Evaluator) Limiting(list corev1.ResourceList) []corev1.ResourceName {
	var out []corev1.ResourceName
	for name := range list {
		if name == e.count || name == e.plain || e.measures(name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// measures reports whether name is a resource besides the number of objects that they
// use.
func (e Evaluator) measures(name corev1.ResourceName) bool {
	switch e.Resource {
	case corev1.Resource("pods"):
		return slices.Contains(computeNames(), name) || hugePages(name) || extendedRequest(name)
	case corev1.Resource("services"):
		return name == corev1.ResourceServicesNodePorts || name == corev1.ResourceServicesLoadBalancers
	case corev1.Resource("persistentvolumeclaims"):
		return name == corev1.ResourceRequestsStorage || strings.Contains(string(name), storageClassInfix)
	case resourcev1.Resource("resourceclaims"):
		return strings.HasSuffix(string(name), corev1.ResourceClaimsPerClass)
	}
	return false
}

// Matches reports whether a quota applies to an object: it limits one of the resources
// that the object uses, and the object is in all of its scopes.
func (e Evaluator) Matches(q *corev1.ResourceQuota, obj metav1.Object) bool {
	return len(e.Limiting(q.Status.Hard)) > 0 && e.InScopes(q, obj)
}

// InScopes reports whether an object is in all scopes of a quota.
func (e Evaluator) InScopes(q *corev1.ResourceQuota, obj metav1.Object) bool {
	scopes := Scopes(q)
	return len(scopes) == len(e.Meets(scopes, obj))
}

// Meets returns the requirements that an object meets. Only pods and persistent volume
// claims are in scopes.
func (e Evaluator) Meets(scopes []corev1.ScopedResourceSelectorRequirement, obj metav1.Object) []corev1.ScopedResourceSelectorRequirement {
	var out []corev1.ScopedResourceSelectorRequirement
	for _, r := range scopes {
		meets := false
		switch obj := obj.(type) {
		case *corev1.Pod:
			meets = inScope(r, obj)
		case *corev1.PersistentVolumeClaim:
			meets = claimInScope(r, obj)
		}
		if meets {
			out = append(out, r)
		}
	}
	return out
}

// Usage returns what an object uses. Of resources other than pods, services, persistent
// volume claims and resource claims it reads nothing of obj.
func (e Evaluator) Usage(obj metav1.Object, now time.Time) corev1.ResourceList {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	out := corev1.ResourceList{e.count: one}
	switch obj := obj.(type) {
	case *corev1.Pod:
		if Ended(obj, now) {
			return out // count/pods counts the pods in the store, all else those that live
		}
		addPod(out, obj)
	case *corev1.Service:
		addService(out, obj)
	case *corev1.PersistentVolumeClaim:
		addClaim(out, obj)
	case *resourcev1.ResourceClaim:
		addDevices(out, obj)
	}
	if e.plain != "" {
		out[e.plain] = one
	}
	return out
}

// Ended reports whether a pod no longer uses resources: it is terminal, or its grace
// period is over, as when its node is lost.
func Ended(pod *corev1.Pod, now time.Time) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return false
	}
	return now.After(pod.DeletionTimestamp.Add(time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second))
}

// addPod adds the compute resources of a pod.
func addPod(out corev1.ResourceList, pod *corev1.Pod) {
	opts := resourcehelper.PodResourcesOptions{UseStatusResources: true}
	addCompute(out, resourcehelper.PodRequests(pod, opts), resourcehelper.PodLimits(pod, opts))
}

func addCompute(out, requests, limits corev1.ResourceList) {
	for name, q := range requests {
		requested := corev1.DefaultResourceRequestsPrefix + name
		switch {
		case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage, hugePages(name):
			out[name], out[requested] = q, q
		case extended(name):
			out[requested] = q
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if q, ok := limits[name]; ok {
			out["limits."+name] = q
		}
	}
}

// addService adds the node ports and the load balancer of a Service.
func addService(out corev1.ResourceList, svc *corev1.Service) {
	ports, balancers := 0, 0
	switch svc.Spec.Type {
	case corev1.ServiceTypeNodePort:
		ports = len(svc.Spec.Ports)
	case corev1.ServiceTypeLoadBalancer:
		ports, balancers = len(svc.Spec.Ports), 1
		if allocate := svc.Spec.AllocateLoadBalancerNodePorts; allocate != nil && !*allocate {
			ports = 0
			for _, p := range svc.Spec.Ports {
				if p.NodePort != 0 {
					ports++
				}
			}
		}
	}
	out[corev1.ResourceServicesNodePorts] = *resource.NewQuantity(int64(ports), resource.DecimalSI)
	out[corev1.ResourceServicesLoadBalancers] = *resource.NewQuantity(int64(balancers), resource.DecimalSI)
}

// addClaim adds the storage of a claim, which counts for its storage class, too.
func addClaim(out corev1.ResourceList, c *corev1.PersistentVolumeClaim) {
	class := c.Annotations[corev1.BetaStorageClassAnnotation]
	if class == "" && c.Spec.StorageClassName != nil {
		class = *c.Spec.StorageClassName
	}
	if class != "" {
		out[corev1.ResourceName(class+storageClassInfix)+corev1.ResourcePersistentVolumeClaims] = *resource.NewQuantity(1, resource.DecimalSI)
	}
	storage, ok := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if !ok {
		return
	}
	// While a failed expansion is taken back, the larger size is in use.
	if allocated := c.Status.AllocatedResources[corev1.ResourceStorage]; allocated.Cmp(storage) > 0 {
		storage = allocated
	}
	out[corev1.ResourceRequestsStorage] = storage
	if class != "" {
		out[corev1.ResourceName(class+storageClassInfix)+corev1.ResourceRequestsStorage] = storage
	}
}

// Missing returns an error unless each container of a pod has a request or a limit for
// each of the names that are CPU or memory, or the pod has one for all of them: a quota
// can only limit what pods declare.
func Missing(names []corev1.ResourceName, pod *corev1.Pod) error {
	shared := corev1.ResourceList{}
	if r := pod.Spec.Resources; r != nil {
		addCompute(shared, r.Requests, r.Limits)
	}
	var missing []string
	for _, name := range names {
		if _, ok := shared[name]; ok || !declared(name) {
			continue
		}
		var containers []string
		for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
			for i := range list {
				has := corev1.ResourceList{}
				addCompute(has, list[i].Resources.Requests, list[i].Resources.Limits)
				if _, ok := has[name]; !ok {
					containers = append(containers, list[i].Name)
				}
			}
		}
		if len(containers) > 0 {
			slices.Sort(containers)
			missing = append(missing, fmt.Sprintf("%s for: %s", name, strings.Join(containers, ",")))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("must specify %s", strings.Join(missing, "; "))
}

func declared(name corev1.ResourceName) bool {
	return slices.Contains(computeNames(), name) && !strings.HasSuffix(string(name), string(corev1.ResourceEphemeralStorage))
}

// Sources returns the resources whose objects use what list limits.
func Sources(list corev1.ResourceList) []schema.GroupResource {
	found := map[schema.GroupResource]bool{}
	for name := range list {
		if counted, ok := strings.CutPrefix(string(name), countPrefix); ok {
			found[schema.ParseGroupResource(counted)] = true
			continue
		}
		for _, gr := range []schema.GroupResource{corev1.Resource("pods"), corev1.Resource("services"), corev1.Resource("persistentvolumeclaims"), resourcev1.Resource("resourceclaims"), corev1.Resource(string(name))} {
			if e := For(gr); name == e.plain || e.measures(name) {
				found[gr] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
}
