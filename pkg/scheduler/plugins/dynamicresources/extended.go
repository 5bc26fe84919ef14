package dynamicresources

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"

	"podium/pkg/controller/ownership"
	"podium/pkg/scheduler/snapshot"
)

// containerRequest is what a container asks for of an extended resource that devices of a class stand for.
// On a node that does not have the resource the pod gets devices.
type containerRequest struct {
	Index     int // of the container: those of spec.initContainers come first
	Container string
	Init      bool // the container ends before later ones start
	Request   int  // index of the resource in the container
	Resource  corev1.ResourceName
	Class     string
	Count     int64
}

// ExtendedClaim returns what the pod asks for of devices in the stead of extended resources, on nodes that
// have none of these; nil if it asks for none.
func ExtendedClaim(pod *corev1.Pod, classes []*resourcev1.DeviceClass) *resourcev1.ResourceClaimSpec {
	s := newStore()
	for _, c := range classes {
		s.OnClass(nil, c)
	}
	requests := s.requests(snapshot.NewPod(pod))
	if len(requests) == 0 {
		return nil
	}
	return &extendedClaimFor(requests).spec
}

// Backs reports whether devices of a class stand for an extended resource.
func (p *Plugin) Backs(resource corev1.ResourceName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.classFor(resource) != ""
}

// classFor returns the class whose devices stand for an extended resource, "" if there is none. Each
// class stands for a resource with its own name, too. The caller holds s.mu.
func (s *store) classFor(resource corev1.ResourceName) string {
	if name, ok := strings.CutPrefix(string(resource), resourcev1.ResourceDeviceClassPrefix); ok && s.classes[name] != nil {
		return name
	}
	return s.byResource[string(resource)]
}

// mapResources finds the classes for extended resources. Of several for one resource the newest
// counts, and of those the first by name. The caller holds s.mu.
func (s *store) mapResources() {
	s.byResource = map[string]string{}
	for _, c := range s.classes {
		if c.Spec.ExtendedResourceName == nil {
			continue
		}
		other := s.classes[s.byResource[*c.Spec.ExtendedResourceName]]
		if other == nil || cmp.Or(c.CreationTimestamp.Compare(other.CreationTimestamp.Time), cmp.Compare(other.Name, c.Name)) > 0 {
			s.byResource[*c.Spec.ExtendedResourceName] = c.Name
		}
	}
}

// requests returns what the pod's containers ask for. The caller holds s.mu.
func (s *store) requests(pod *snapshot.Pod) (out []containerRequest) {
	if len(pod.Requests.Extended) == 0 {
		return nil
	}
	inits := len(pod.Spec.InitContainers)
	for i, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for k, resource := range slices.Sorted(maps.Keys(c.Resources.Requests)) {
			count := c.Resources.Requests[resource]
			if class := s.classFor(resource); class != "" && !count.IsZero() {
				out = append(out, containerRequest{
					Index: i, Container: c.Name, Init: i < inits && !snapshot.Sidecar(&c),
					Request: k, Resource: resource, Class: class, Count: count.Value(),
				})
			}
		}
	}
	return out
}

// extendedClaim is the claim that stands for extended resources of a pod, and which of its requests are
// for which container.
type extendedClaim struct {
	spec     resourcev1.ResourceClaimSpec
	mappings []corev1.ContainerExtendedResourceRequest
}

// extendedClaimFor returns the claim for requests. An init container gets devices of containers that start
// after it, and more only if these are too few.
func extendedClaimFor(requests []containerRequest) *extendedClaim {
	s := &extendedClaim{}
	for _, w := range requests {
		if !w.Init {
			s.add(w, w.Count)
		}
	}
	long := len(s.mappings)
	for _, w := range requests {
		if w.Init {
			s.addInit(w, requests, long)
		}
	}
	return s
}

// addInit adds the request of an init container. The first mappings, long, are of containers that run on.
func (s *extendedClaim) addInit(w containerRequest, requests []containerRequest, long int) {
	missing := w.Count
	for i, m := range slices.Clone(s.mappings) {
		started := i < long && slices.ContainsFunc(requests, func(o containerRequest) bool { return o.Container == m.ContainerName && o.Index < w.Index })
		if missing <= 0 || started || corev1.ResourceName(m.ResourceName) != w.Resource || s.maps(w.Container, m.RequestName) {
			continue
		}
		s.mappings = append(s.mappings, corev1.ContainerExtendedResourceRequest{ContainerName: w.Container, ResourceName: m.ResourceName, RequestName: m.RequestName})
		missing -= s.count(m.RequestName)
	}
	if missing > 0 {
		s.add(w, missing)
	}
}

func (s *extendedClaim) add(w containerRequest, count int64) {
	name := fmt.Sprintf("container-%d-request-%d", w.Index, w.Request)
	s.spec.Devices.Requests = append(s.spec.Devices.Requests, resourcev1.DeviceRequest{Name: name, Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: w.Class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count,
	}})
	s.mappings = append(s.mappings, corev1.ContainerExtendedResourceRequest{ContainerName: w.Container, ResourceName: string(w.Resource), RequestName: name})
}

// maps reports whether a container has the devices of a request already.
func (s *extendedClaim) maps(container, request string) bool {
	return slices.ContainsFunc(s.mappings, func(m corev1.ContainerExtendedResourceRequest) bool {
		return m.ContainerName == container && m.RequestName == request
	})
}

// count returns how many devices a request is for.
func (s *extendedClaim) count(request string) int64 {
	i := slices.IndexFunc(s.spec.Devices.Requests, func(r resourcev1.DeviceRequest) bool { return r.Name == request })
	return s.spec.Devices.Requests[i].Exactly.Count
}

// extendedClaimName returns the key of the claim that stands for extended resources of a pod. It depends on
// the pod only: a scheduler finds what an earlier one has left.
func extendedClaimName(pod *corev1.Pod) types.NamespacedName {
	hash := fnv.New32a()
	hash.Write([]byte(pod.UID))
	suffix := "-extended-resources-" + rand.SafeEncodeString(fmt.Sprint(hash.Sum32()))
	base := pod.Name[:min(len(pod.Name), validation.DNS1123SubdomainMaxLength-len(suffix))]
	return types.NamespacedName{Namespace: pod.Namespace, Name: strings.TrimRight(base, "-.") + suffix}
}

// claim returns the claim to create.
func (s *extendedClaim) claim(pod *corev1.Pod) *resourcev1.ResourceClaim {
	key := extendedClaimName(pod)
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Finalizers: []string{resourcev1.Finalizer},
			Annotations:     map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
			OwnerReferences: []metav1.OwnerReference{ownership.Reference(pod, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: s.spec,
	}
}
