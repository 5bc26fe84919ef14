package pods

import (
	"context"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// AnnotationApplied is where a proxy says, in its Lease, up to which
// resourceVersion of EndpointSlices its rules are.
const AnnotationApplied = "podium.dev/endpoints-applied"

// drainPoll is how often drain looks.
const drainPoll = 100 * time.Millisecond

// Endpoints is where drain sees who still sends traffic to a pod.
type Endpoints interface {
	// Slices lists the EndpointSlices of a namespace, Slice reads one.
	Slices(ctx context.Context, namespace string) ([]*discoveryv1.EndpointSlice, error)
	Slice(ctx context.Context, namespace, name string) (*discoveryv1.EndpointSlice, error)
	// Proxies lists the Leases of the cluster's proxies.
	Proxies(ctx context.Context) ([]*coordinationv1.Lease, error)
}

// drain waits until every EndpointSlice that has the pod shows it as
// terminating, and every proxy that lives has applied that. It is false when
// ctx ended first. So a pod is not told to stop while it still gets requests.
func drain(ctx context.Context, e Endpoints, pod *corev1.Pod) bool {
	var slices []*discoveryv1.EndpointSlice
	for {
		all, err := e.Slices(ctx, pod.Namespace)
		if err == nil {
			for _, s := range all {
				if endpointOf(s, pod) != nil {
					slices = append(slices, s)
				}
			}
			break
		}
		if !sleep(ctx, drainPoll, nil) {
			return false
		}
	}
	if len(slices) == 0 {
		return true
	}
	for !drained(ctx, e, pod, slices) {
		if !sleep(ctx, drainPoll, nil) {
			return false
		}
		for i, s := range slices {
			if outOfRotation(s, pod) {
				continue // the revision that matters is the first that says so
			}
			now, err := e.Slice(ctx, s.Namespace, s.Name)
			if err == nil {
				slices[i] = now
			} else if apierrors.IsNotFound(err) {
				slices[i] = &discoveryv1.EndpointSlice{ObjectMeta: s.ObjectMeta}
			}
		}
	}
	return true
}

func drained(ctx context.Context, e Endpoints, pod *corev1.Pod, slices []*discoveryv1.EndpointSlice) bool {
	var need uint64
	for _, s := range slices {
		if !outOfRotation(s, pod) {
			return false
		}
		rv, err := strconv.ParseUint(s.ResourceVersion, 10, 64)
		if err == nil {
			need = max(need, rv)
		}
	}
	proxies, err := e.Proxies(ctx)
	if err != nil {
		return false
	}
	for _, lease := range proxies {
		if expired(lease, time.Now()) {
			continue
		}
		if applied, err := strconv.ParseUint(lease.Annotations[AnnotationApplied], 10, 64); err != nil || applied < need {
			return false
		}
	}
	return true
}

// outOfRotation says that nobody who goes by the slice sends the pod anything new.
func outOfRotation(s *discoveryv1.EndpointSlice, pod *corev1.Pod) bool {
	end := endpointOf(s, pod)
	return end == nil || end.Conditions.Terminating != nil && *end.Conditions.Terminating
}

func endpointOf(s *discoveryv1.EndpointSlice, pod *corev1.Pod) *discoveryv1.Endpoint {
	for i := range s.Endpoints {
		if ref := s.Endpoints[i].TargetRef; ref != nil && ref.UID == pod.UID {
			return &s.Endpoints[i]
		}
	}
	return nil
}

func expired(l *coordinationv1.Lease, now time.Time) bool {
	if l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
		return true
	}
	return now.After(l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second))
}
