package workloads

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"podium/pkg/client"
	"podium/test/e2e/docked"
)

// An autoscaler follows the load of a Service to its maximum, and back, and loses no request.
func TestAutoscalerFollowsTheLoad(t *testing.T) {
	s := the.Space(t)
	s.Apply(web(1, "1", "0", "minAvailable: 1") + "---" + scaler(1, 8, 50))
	s.RolledOut("web", time.Minute)
	scaled(s, 1, "it is idle")
	l := startLoad(s, "web", 4)
	scaled(s, 8, "all nodes send requests")
	s.RolledOut("web", time.Minute)
	l.lostNone(t)
	scaled(s, 1, "it is idle again")
}

// scaled waits until the autoscaler has given web so many replicas because of its metrics.
func scaled(s *docked.Space, want int32, why string) {
	s.T.Helper()
	docked.Eventually(s.T, 5*time.Minute, fmt.Sprintf("%d replicas: %s", want, why), func(ctx context.Context) error {
		d, err := client.For[*appsv1.Deployment](s.API).In(s.Namespace).Get(ctx, "web")
		if err != nil {
			return err
		}
		a, err := client.For[*autoscalingv2.HorizontalPodAutoscaler](s.API).In(s.Namespace).Get(ctx, "web")
		if err == nil && (*d.Spec.Replicas != want || a.Status.DesiredReplicas != want || len(a.Status.CurrentMetrics) == 0) {
			err = fmt.Errorf("it has %d, and the autoscaler says %+v", *d.Spec.Replicas, a.Status)
		}
		return err
	})
}
