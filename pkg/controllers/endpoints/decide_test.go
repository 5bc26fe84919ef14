package endpoints

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func service(change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns"},
		Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.9", Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}}},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func pod(i int, ready bool) *corev1.Pod {
	name := fmt.Sprintf("p%d", i)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Status: corev1.PodStatus{PodIP: fmt.Sprintf("10.0.%d.%d", i/250, i%250)}}
	if ready {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return p
}

func many(ready, notReady int) (out []*corev1.Pod) {
	for i := range ready + notReady {
		out = append(out, pod(i, i < ready))
	}
	return out
}

func TestDecide(t *testing.T) {
	headless := func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.Ports = corev1.ClusterIPNone, nil }
	publish := func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }
	leaving := pod(1, true)
	leaving.DeletionTimestamp = &metav1.Time{}
	tests := map[string]struct {
		reason  string
		s       *corev1.Service
		members []*corev1.Pod
		want    string
	}{
		"Empty":        {"no pods, no subsets", service(), nil, ""},
		"Ready":        {"ready and not ready apart", service(), many(2, 1), "2+1 8080"},
		"Publish":      {"all count as ready", service(publish), many(2, 1), "3+0 8080"},
		"Leaving":      {"a pod on its way out is not listed", service(), []*corev1.Pod{leaving}, ""},
		"Headless":     {"a headless service needs no ports", service(headless), many(1, 0), "1+0"},
		"Truncated":    {"1000 addresses at most, the ready ones first", service(), many(900, 200), "900+100 8080 truncated"},
		"TooManyReady": {"even of the ready ones", service(), many(1200, 5), "1000+0 8080 truncated"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			e, change := decide(tc.s, tc.members, nil)
			got := ""
			for _, s := range e.Subsets {
				got += fmt.Sprintf("%d+%d", len(s.Addresses), len(s.NotReadyAddresses))
				for _, p := range s.Ports {
					got += fmt.Sprintf(" %d", p.Port)
				}
			}
			if e.Annotations[corev1.EndpointsOverCapacity] != "" {
				got += " " + e.Annotations[corev1.EndpointsOverCapacity]
			}
			if got != tc.want || !change {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
			if _, change := decide(tc.s, tc.members, e); change {
				t.Error("a second look finds nothing to change")
			}
		})
	}
}
