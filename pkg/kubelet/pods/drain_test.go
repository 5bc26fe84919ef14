package pods

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// rotation simulates, over time, a slice with one pod and the progress of a proxy.
type rotation struct {
	began time.Time
	steps []rotationStep
}

type rotationStep struct {
	at          time.Duration
	revision    int
	pod         string // "in", "terminating" or "out"
	gone        bool   // the slice is deleted
	acknowledge int    // the revision that the proxy has applied
}

func (r *rotation) now() rotationStep {
	step := r.steps[0]
	for _, s := range r.steps {
		if time.Since(r.began) >= s.at {
			step = s
		}
	}
	return step
}

func (r *rotation) Slice(context.Context, string, string) (*discoveryv1.EndpointSlice, error) {
	step := r.now()
	if step.gone {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "endpointslices"}, "web")
	}
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "web", ResourceVersion: strconv.Itoa(step.revision)}}
	if step.pod != "out" {
		s.Endpoints = []discoveryv1.Endpoint{{TargetRef: &corev1.ObjectReference{UID: "uid"}, Conditions: discoveryv1.EndpointConditions{Terminating: ptr(step.pod == "terminating")}}}
	}
	return s, nil
}

func (r *rotation) Slices(ctx context.Context, namespace string) ([]*discoveryv1.EndpointSlice, error) {
	s, err := r.Slice(ctx, namespace, "web")
	if err != nil {
		return nil, nil
	}
	return []*discoveryv1.EndpointSlice{s}, nil
}

func (r *rotation) Proxies(context.Context) ([]*coordinationv1.Lease, error) {
	return []*coordinationv1.Lease{{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationApplied: strconv.Itoa(r.now().acknowledge)}},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Now()}, LeaseDurationSeconds: ptr(int32(40))},
	}}, nil
}

func TestDrain(t *testing.T) {
	const ms = time.Millisecond
	for name, row := range map[string]struct {
		reason string
		steps  []rotationStep
		want   time.Duration // zero: until the deadline
	}{
		"Acknowledged": {
			"the proxy's word ends the wait",
			[]rotationStep{{0, 1, "in", false, 1}, {150 * ms, 2, "terminating", false, 1}, {250 * ms, 2, "terminating", false, 2}}, 300*ms + settleTime,
		},
		"SliceGoesOnChanging": {
			"changes after the one that took the pod out are others' business",
			[]rotationStep{{0, 1, "in", false, 1}, {50 * ms, 2, "terminating", false, 1}, {150 * ms, 9, "terminating", false, 2}}, 200*ms + settleTime,
		},
		"SliceDeleted": {
			"who applied the last revision with the pod need not say more",
			[]rotationStep{{0, 5, "in", false, 5}, {50 * ms, 5, "", true, 5}}, 100*ms + settleTime,
		},
		"NotInAny": {"nothing is sent to it", []rotationStep{{0, 1, "out", false, 0}}, 0},
		"Silent":   {"a proxy that says nothing is waited for", []rotationStep{{0, 2, "terminating", false, 1}}, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				begin := time.Now()
				out := drain(ctx, &rotation{began: begin, steps: row.steps}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid"}})
				if took := time.Since(begin); took != row.want || out != (row.want < 5*time.Second) {
					t.Errorf("%s: %t after %v, want %v", row.reason, out, took, row.want)
				}
			})
		})
	}
}
