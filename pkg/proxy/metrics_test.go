package proxy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/proxy/iptables"
)

// names returns the metrics and the names of their labels.
func (w *world) names() (out []string) {
	w.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		out = append(out, f.GetName()+"{"+strings.Join(labels, ",")+"}")
	}
	return out
}

// noLocal returns the values of the metric of Services without endpoints on this node.
func (w *world) noLocal() (out string) {
	w.Helper()
	synctest.Wait()
	families, err := w.registry.Gather()
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "kubeproxy_sync_proxy_rules_no_local_endpoints_total" {
				out += fmt.Sprint(m.GetLabel()[1].GetValue(), " ", m.GetGauge().GetValue(), " ")
			}
		}
	}
	return out
}

// TestMetrics checks that the metrics have the labels of the instrumentation reference.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newAPI(), iptables.NewFake())
		defer w.stop()
		local := corev1.ServiceInternalTrafficPolicyLocal
		svc := service("web", "10.96.0.7")
		svc.Spec.Type, svc.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30080
		svc.Spec.InternalTrafficPolicy, svc.Spec.ExternalTrafficPolicy = &local, corev1.ServiceExternalTrafficPolicyLocal
		w.api.put(svc)
		time.Sleep(time.Second)
		if got := w.noLocal(); got != "external 0 internal 0 " {
			t.Errorf("without endpoints: %s", got)
		}
		w.api.put(slice("web", ready("10.244.0.1")))
		time.Sleep(time.Second)
		if got := w.noLocal(); got != "external 1 internal 1 " {
			t.Errorf("with an endpoint elsewhere: %s", got)
		}
		there := ready("10.244.0.1")
		there.NodeName = new("here")
		w.api.put(slice("web", there))
		time.Sleep(time.Second)
		if got := w.noLocal(); got != "external 0 internal 0 " {
			t.Errorf("with an endpoint on this node: %s", got)
		}
		want := []string{
			"kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family}",
			"kubeproxy_network_programming_duration_seconds{ip_family}",
			"kubeproxy_rules_repaired_total{}",
			"kubeproxy_sync_full_proxy_rules_duration_seconds{ip_family}",
			"kubeproxy_sync_partial_proxy_rules_duration_seconds{ip_family}",
			"kubeproxy_sync_proxy_rules_duration_seconds{ip_family}",
			"kubeproxy_sync_proxy_rules_endpoint_changes_pending{}",
			"kubeproxy_sync_proxy_rules_endpoint_changes_total{}",
			"kubeproxy_sync_proxy_rules_iptables_last{ip_family,table}",
			"kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total{ip_family}",
			"kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family}",
			"kubeproxy_sync_proxy_rules_iptables_total{ip_family,table}",
			"kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family}",
			"kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family}",
			"kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family,traffic_policy}",
			"kubeproxy_sync_proxy_rules_service_changes_pending{}",
			"kubeproxy_sync_proxy_rules_service_changes_total{}",
		}
		if diff := cmp.Diff(want, slices.DeleteFunc(w.names(), func(n string) bool { return !strings.HasPrefix(n, "kubeproxy_") })); diff != "" {
			t.Error(diff)
		}
	})
}
