package resourcequota

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/controller/loop"
)

// A watch that lags makes the cache lack a pod that was charged long ago. Lowering the usage to
// what the cache has would admit one pod too many.
func TestUsageIsLoweredToWhatTheAPIHas(t *testing.T) {
	for name, row := range map[string]struct{ charged, cached, stored, want int64 }{
		"CacheLags":    {charged: 4, cached: 3, stored: 4, want: 4},
		"PodsAreGone":  {charged: 4, cached: 3, stored: 3, want: 3},
		"MoreAreGone":  {charged: 4, cached: 3, stored: 1, want: 1},
		"NotLowered":   {charged: 4, cached: 4, stored: 0, want: 4}, // the API is not asked
		"ChargeIsLost": {charged: 3, cached: 4, stored: 0, want: 4},
	} {
		t.Run(name, func(t *testing.T) {
			r := &reconciler{}
			r.changed, r.delayed = map[loop.Key]time.Time{}, map[loop.Key]time.Time{}
			r.sources = &sources{reconciler: r, ready: map[schema.GroupResource]*source{corev1.Resource("pods"): {
				in:   pods(row.cached),
				read: func(context.Context, string) (*source, error) { return &source{in: pods(row.stored)}, nil },
			}}}
			q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q"}}
			q.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(4, resource.DecimalSI)}
			q.Status.Used = corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(row.charged, resource.DecimalSI)}
			used, wait, err := r.used(t.Context(), loop.KeyOf(q), q)
			if got := used.Pods().Value(); got != row.want || wait > 0 || err != nil {
				t.Errorf("used %d, wait %s, %v, want %d", got, wait, err, row.want)
			}
		})
	}
}

// pods returns a source of n pods.
func pods(n int64) func(string) []metav1.Object {
	return func(string) []metav1.Object {
		out := make([]metav1.Object, n)
		for i := range out {
			out[i] = &corev1.Pod{}
		}
		return out
	}
}
