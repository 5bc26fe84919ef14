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

// wish is what a container asks for of an extended resource that devices of a class stand for.
// On a node that does not have the resource the pod gets devices.
type wish struct {
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
	wishes := s.wishes(snapshot.NewPod(pod))
	if len(wishes) == 0 {
		return nil
	}
	return &standFor(wishes).spec
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
	all := slices.SortedFunc(maps.Values(s.classes), func(a, b *resourcev1.DeviceClass) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	s.byResource = map[string]string{}
	for _, c := range slices.Backward(all) {
		if c.Spec.ExtendedResourceName != nil {
			s.byResource[*c.Spec.ExtendedResourceName] = c.Name
		}
	}
}

// wishes returns what the pod's containers ask for. The caller holds s.mu.
func (s *store) wishes(pod *snapshot.Pod) (out []wish) {
	if !slices.ContainsFunc(slices.Collect(maps.Keys(pod.Requests.Extended)), func(r corev1.ResourceName) bool { return s.classFor(r) != "" }) {
		return nil
	}
	inits := len(pod.Spec.InitContainers)
	for i, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		for k, resource := range slices.Sorted(maps.Keys(c.Resources.Requests)) {
			count := c.Resources.Requests[resource]
			if class := s.classFor(resource); class != "" && !count.IsZero() {
				out = append(out, wish{Index: i, Container: c.Name, Init: i < inits && !sidecar, Request: k, Resource: resource, Class: class, Count: count.Value()})
			}
		}
	}
	return out
}

// stand is the claim that stands for extended resources of a pod, and which of its requests are
// for which container.
type stand struct {
	spec     resourcev1.ResourceClaimSpec
	mappings []corev1.ContainerExtendedResourceRequest
}

// standFor returns what the wishes ask for. An init container gets devices of containers that start
// after it, and more only if these are too few.
func standFor(wishes []wish) *stand {
	s := &stand{}
	for _, w := range wishes {
		if !w.Init {
			s.add(w, w.Count)
		}
	}
	long := len(s.mappings)
	for _, w := range wishes {
		if w.Init {
			s.addInit(w, wishes, long)
		}
	}
	return s
}

// addInit adds the wish of an init container. The first mappings, long, are of containers that run on.
func (s *stand) addInit(w wish, wishes []wish, long int) {
	missing := w.Count
	for i, m := range slices.Clone(s.mappings) {
		started := i < long && slices.ContainsFunc(wishes, func(o wish) bool { return o.Container == m.ContainerName && o.Index < w.Index })
		if missing > 0 && corev1.ResourceName(m.ResourceName) == w.Resource && !started && !s.maps(w.Container, m.RequestName) {
			s.mappings = append(s.mappings, corev1.ContainerExtendedResourceRequest{ContainerName: w.Container, ResourceName: m.ResourceName, RequestName: m.RequestName})
			missing -= s.count(m.RequestName)
		}
	}
	if missing > 0 {
		s.add(w, missing)
	}
}

func (s *stand) add(w wish, count int64) {
	name := fmt.Sprintf("container-%d-request-%d", w.Index, w.Request)
	s.spec.Devices.Requests = append(s.spec.Devices.Requests, resourcev1.DeviceRequest{Name: name, Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: w.Class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count,
	}})
	s.mappings = append(s.mappings, corev1.ContainerExtendedResourceRequest{ContainerName: w.Container, ResourceName: string(w.Resource), RequestName: name})
}

// maps reports whether a container has the devices of a request already.
func (s *stand) maps(container, request string) bool {
	return slices.ContainsFunc(s.mappings, func(m corev1.ContainerExtendedResourceRequest) bool {
		return m.ContainerName == container && m.RequestName == request
	})
}

// count returns how many devices a request is for.
func (s *stand) count(request string) int64 {
	i := slices.IndexFunc(s.spec.Devices.Requests, func(r resourcev1.DeviceRequest) bool { return r.Name == request })
	return s.spec.Devices.Requests[i].Exactly.Count
}

// standName returns the key of the claim that stands for extended resources of a pod. It depends on
// the pod only: a scheduler finds what an earlier one has left.
func standName(pod *corev1.Pod) types.NamespacedName {
	hash := fnv.New32a()
	hash.Write([]byte(pod.UID))
	suffix := "-extended-resources-" + rand.SafeEncodeString(fmt.Sprint(hash.Sum32()))
	base := pod.Name[:min(len(pod.Name), validation.DNS1123SubdomainMaxLength-len(suffix))]
	return types.NamespacedName{Namespace: pod.Namespace, Name: strings.TrimRight(base, "-.") + suffix}
}

// claim returns the claim to create.
func (s *stand) claim(pod *corev1.Pod) *resourcev1.ResourceClaim {
	key := standName(pod)
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Finalizers: []string{resourcev1.Finalizer},
			Annotations:     map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
			OwnerReferences: []metav1.OwnerReference{ownership.Reference(pod, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: s.spec,
	}
}
