package resourcequota

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/controller/loop"
)

// reconcilerOf returns one for a namespace with these numbers of pods.
func reconcilerOf(cached, stored int64) *reconciler {
	r := &reconciler{changed: map[loop.Key]time.Time{}, delayed: map[loop.Key]time.Time{}, resting: map[loop.Key]time.Time{}}
	r.sources = &sources{reconciler: r, ready: map[schema.GroupResource]*source{corev1.Resource("pods"): {
		in: pods(cached),
		read: func(context.Context, string) (*source, error) {
			return &source{in: pods(stored), count: func(string) int { return int(stored) }}, nil
		},
	}}}
	return r
}

func quotaOf(charged int64) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q"}}
	q.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(4, resource.DecimalSI)}
	q.Status.Used = corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(charged, resource.DecimalSI)}
	return q
}

// While the pods of a large namespace come and go, the API is not read for each of them.
func TestReadsOfManyObjectsAreRare(t *testing.T) {
	for name, row := range map[string]struct {
		stored int64
		want   time.Duration
	}{
		"Few":     {stored: 10, want: 10 * time.Millisecond},
		"Many":    {stored: 3000, want: 3 * time.Second},
		"TooMany": {stored: 20_000, want: patience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, q := reconcilerOf(row.stored-1, row.stored), quotaOf(row.stored+1)
				for _, want := range []time.Duration{0, row.want} {
					if _, wait, err := r.used(t.Context(), loop.KeyOf(q), q); wait != want || err != nil {
						t.Errorf("wait %s, %v, want %s", wait, err, want)
					}
				}
				time.Sleep(row.want)
				if used, wait, err := r.used(t.Context(), loop.KeyOf(q), q); used.Pods().Value() != row.stored || wait != 0 || err != nil {
					t.Errorf("used %s, wait %s, %v", used.Pods(), wait, err)
				}
			})
		})
	}
}

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
			r, q := reconcilerOf(row.cached, row.stored), quotaOf(row.charged)
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
