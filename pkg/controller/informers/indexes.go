package informers

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client/informer"
	"podium/pkg/scheme"
)

// Index adds an index to an informer, once for each name, and returns its lookup. Call it
// before the informer runs.
func Index[T scheme.Object](i *informer.Informer[T], name string, values func(T) []string) func(value string) []T {
	i.Index(name, values)
	return func(value string) []T { return i.By(name, value) }
}

// Owned finds objects by their controller owner reference.
type Owned[T scheme.Object] struct{ lookup func(string) []T }

// ByController returns the lookup by owner of the set's informer for T.
func ByController[T scheme.Object](s *Set) Owned[T] {
	return Owned[T]{Index(For[T](s), "controller", func(obj T) []string {
		if ref := metav1.GetControllerOfNoCopy(obj); ref != nil {
			return []string{string(ref.UID)}
		}
		return []string{"/" + obj.GetNamespace()}
	})}
}

// By lists the objects whose controller has the UID uid.
func (o Owned[T]) By(uid types.UID) []T { return o.lookup(string(uid)) }

// Orphans lists the objects of a namespace that have no controller.
func (o Owned[T]) Orphans(namespace string) []T { return o.lookup("/" + namespace) }

// PodsByNode returns a lookup of the pods bound to a node; "": of unbound pods.
func PodsByNode(s *Set) func(node string) []*corev1.Pod {
	return Index(For[*corev1.Pod](s), "node", func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} })
}

// NodeLeases returns the informer for the Leases that kubelets renew.
func NodeLeases(s *Set) *informer.Informer[*coordinationv1.Lease] {
	return Select[*coordinationv1.Lease](s, Selection{Namespace: corev1.NamespaceNodeLease})
}

// SlicesByService returns a lookup of the EndpointSlices of a Service, whichever
// controller manages them.
func SlicesByService(s *Set) func(namespace, service string) []*discoveryv1.EndpointSlice {
	lookup := Index(For[*discoveryv1.EndpointSlice](s), "service", func(es *discoveryv1.EndpointSlice) []string {
		return []string{es.Namespace + "/" + es.Labels[discoveryv1.LabelServiceName]}
	})
	return func(namespace, service string) []*discoveryv1.EndpointSlice { return lookup(namespace + "/" + service) }
}
