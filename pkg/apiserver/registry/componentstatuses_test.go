package registry_test

//lint:file-ignore SA1019 ComponentStatuses are deprecated, and served.

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
)

// Many requests share one probe, which ends by itself; a request that ends earlier does
// not wait for it.
func TestComponentProbesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var probes atomic.Int32
		hangs := registry.Component{Name: "scheduler", Probe: func(ctx context.Context) (string, error) {
			probes.Add(1)
			<-ctx.Done()
			return "", ctx.Err()
		}}
		var kind *registry.Kind
		for _, k := range registry.Kinds(scheme.New(), registry.Config{Components: []registry.Component{hangs}}) {
			if k.Resource == "componentstatuses" {
				kind = k
			}
		}
		status := func(ctx context.Context) corev1.ComponentCondition {
			return kind.Compute(ctx, "scheduler")[0].(*corev1.ComponentStatus).Conditions[0]
		}
		began := time.Now()
		var requests sync.WaitGroup
		for range 100 {
			requests.Go(func() {
				if got := status(t.Context()); got.Status != corev1.ConditionFalse || got.Message != "context deadline exceeded" {
					t.Errorf("got %+v", got)
				}
			})
		}
		requests.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if got := status(ctx); got.Status != corev1.ConditionUnknown || got.Error != "context deadline exceeded" {
				t.Errorf("the short request got %+v", got)
			}
			if took := time.Since(began); took != time.Second {
				t.Errorf("the short request took %v", took)
			}
		})
		requests.Wait()
		if took := time.Since(began); took > 5*time.Second || probes.Load() != 1 {
			t.Errorf("%d probes took %v", probes.Load(), took)
		}
	})
}
