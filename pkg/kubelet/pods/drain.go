package pods

import (
	"context"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/backoff"
)

// AnnotationApplied is the annotation in which a proxy reports, in its Lease, the
// resourceVersion of EndpointSlices that its rules reflect.
const AnnotationApplied = "podium.dev/endpoints-applied"

// drainPoll is the polling interval of drain.
const drainPoll = 100 * time.Millisecond

// settleTime is for connections that were opened just before the proxies applied the
// change. A server whose node is busy may not have accepted them yet; it would
// reset them when it closes its socket.
const settleTime = 250 * time.Millisecond

// Endpoints reads the objects that show whether proxies still send traffic to a
// pod.
type Endpoints interface {
	// Slices lists the EndpointSlices of a namespace; Slice reads one.
	Slices(ctx context.Context, namespace string) ([]*discoveryv1.EndpointSlice, error)
	Slice(ctx context.Context, namespace, name string) (*discoveryv1.EndpointSlice, error)
	// Proxies lists the Leases of the cluster's proxies.
	Proxies(ctx context.Context) ([]*coordinationv1.Lease, error)
}

// drain blocks until every EndpointSlice with the pod shows it as terminating and
// every live proxy has applied that, so that the containers are not stopped while
// they still receive requests, or have not accepted connections. It returns false if
// ctx ended first.
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
		if backoff.Sleep(ctx, drainPoll) != nil {
			return false
		}
	}
	if len(slices) == 0 {
		return true
	}
	for !drained(ctx, e, pod, slices) {
		if backoff.Sleep(ctx, drainPoll) != nil {
			return false
		}
		for i, s := range slices {
			if outOfRotation(s, pod) {
				continue // the first terminating revision is the one that proxies must apply
			}
			now, err := e.Slice(ctx, s.Namespace, s.Name)
			if err == nil {
				slices[i] = now
			} else if apierrors.IsNotFound(err) {
				slices[i] = &discoveryv1.EndpointSlice{ObjectMeta: s.ObjectMeta}
			}
		}
	}
	return backoff.Sleep(ctx, settleTime) == nil
}

// drained reports whether all slices have the pod out of rotation and all live
// proxies have applied these slices. It returns false if it cannot read the Leases.
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

// outOfRotation reports whether the slice makes proxies send the pod no new
// connections.
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

// expired reports whether a proxy has not renewed its Lease in time; then drain
// ignores the proxy.
func expired(l *coordinationv1.Lease, now time.Time) bool {
	if l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
		return true
	}
	return now.After(l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second))
}
