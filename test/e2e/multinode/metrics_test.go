package multinode

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"podium/pkg/client"
	"podium/test/e2e/docked"
)

// measured is how long it may take until a change shows in the metrics: two samples, 15 s
// apart, or the time until the last one is too old.
const measured = 90 * time.Second

// measuredNodes returns the nodes whose usage metrics-server serves, and when each was measured.
func (s *space) measuredNodes(ctx context.Context) (map[string]time.Time, error) {
	body, _, err := s.API.Do(ctx, client.Request{Path: "/apis/metrics.k8s.io/v1beta1/nodes"})
	if err != nil {
		return nil, err
	}
	var list metricsv1beta1.NodeMetricsList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	out := map[string]time.Time{}
	for _, m := range list.Items {
		out[m.Name] = m.Timestamp.Time
	}
	return out, nil
}

// metricsOf waits until exactly these nodes are measured, at a time after since.
func (s *space) metricsOf(since time.Time, nodes ...string) {
	s.T.Helper()
	docked.Eventually(s.T, measured, "the usage of "+strings.Join(nodes, ", ")+" is known", func(ctx context.Context) error {
		got, err := s.measuredNodes(ctx)
		if err != nil {
			return err
		}
		for name, at := range got {
			if !slices.Contains(nodes, name) || at.Before(since) {
				return fmt.Errorf("%s was measured at %v", name, at)
			}
		}
		if len(got) != len(nodes) {
			return fmt.Errorf("these are measured: %v", got)
		}
		return nil
	})
}

// A kubelet that does not answer hides the usage of its own node only.
func TestAKubeletThatHangsHidesNoOthersMetrics(t *testing.T) {
	s := the.space(t)
	s.metricsOf(time.Time{}, plane, worker1, worker2)
	list, err := s.Pods.In("kube-system").List(t.Context(), metav1.ListOptions{LabelSelector: "k8s-app=metrics-server"})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%d pods of metrics-server, %v", len(list.Items), err)
	}
	// A node reaches its own kubelet in another way.
	hung, other := worker1, worker2
	if list.Items[0].Spec.NodeName == hung {
		hung, other = worker2, worker1
	}
	const rule = "INPUT -p tcp --dport 10250 -j DROP"
	sh(t, hung, "iptables -I "+rule)
	hangs := true
	answer := func(ctx context.Context) {
		if !hangs {
			return
		}
		hangs = false
		if _, err := trySh(ctx, hung, "iptables -D "+rule); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { answer(context.Background()) })
	began := time.Now()
	s.metricsOf(began, plane, other)
	answer(t.Context())
	s.metricsOf(began, plane, worker1, worker2)
}
