package resourcequota

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/quota"
)

// source is a copy of the objects of one resource.
type source struct {
	in    func(namespace string) []metav1.Object // nil: only the number of objects matters
	count func(namespace string) int
	read  func(ctx context.Context, namespace string) (*source, error) // what the API has now
}

// usage returns what the objects in the namespace of q use of its limits. What cannot
// be computed, because of returns nil for its resource, stays as it is in the status.
func usage(q *corev1.ResourceQuota, of func(schema.GroupResource) *source, now time.Time) corev1.ResourceList {
	used := corev1.ResourceList{}
	for _, gr := range quota.Sources(q.Spec.Hard) {
		e := quota.For(gr)
		names := e.Limiting(q.Spec.Hard)
		src := of(gr)
		switch {
		case src == nil:
			quota.Add(used, quota.Select(q.Status.Used, names))
			continue
		case src.in == nil:
			n := int64(0)
			if e.InScopes(q, nil) {
				n = int64(src.count(q.Namespace))
			}
			for _, name := range names {
				used[name] = *resource.NewQuantity(n, resource.DecimalSI)
			}
			continue
		}
		for _, name := range names {
			used[name] = *resource.NewQuantity(0, q.Spec.Hard[name].Format)
		}
		for _, obj := range src.in(q.Namespace) {
			if e.InScopes(q, obj) {
				quota.Add(used, quota.Select(e.Usage(obj, now), names))
			}
		}
	}
	return used
}
