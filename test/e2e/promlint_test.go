package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// metricsPages are the pages of metrics of all daemons, those of the API server and of the
// kubelet through the API server.
var metricsPages = map[string]string{
	"kube-apiserver":          "/metrics",
	"kube-controller-manager": "https://127.0.0.1:10257/metrics",
	"kube-scheduler":          "https://127.0.0.1:10259/metrics",
	"kube-proxy":              "http://127.0.0.1:10249/metrics",
	"kubelet":                 "/api/v1/nodes/node-a/proxy/metrics",
	"kubelet-cadvisor":        "/api/v1/nodes/node-a/proxy/metrics/cadvisor",
	"kubelet-resource":        "/api/v1/nodes/node-a/proxy/metrics/resource",
	"kubelet-probes":          "/api/v1/nodes/node-a/proxy/metrics/probes",
}

// probed is a pod of whose probe the kubelet has metrics.
const probed = `
apiVersion: v1
kind: Pod
metadata: {name: probed}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - {name: sleeper, image: "localhost/podium/busybox:v1", command: [sleep, "3600"], livenessProbe: {exec: {command: ["true"]}, periodSeconds: 1}}
`

// upstreamNames are metrics whose names break Prometheus's conventions in Kubernetes too, by
// the problem that promlint finds. Dashboards rely on the names.
var upstreamNames = map[string][]string{
	"apiserver_admission_webhook_rejection_count":                {counterSuffix, `non-histogram and non-summary metrics should not have "_count" suffix`},
	"authenticated_user_requests":                                {counterSuffix},
	"authentication_attempts":                                    {counterSuffix},
	"kubelet_certificate_manager_client_expiration_renew_errors": {counterSuffix},
	"kubelet_certificate_manager_server_expiration_renew_errors": {counterSuffix},
	"kubelet_topology_manager_admission_duration_ms":             {"metric names should not contain abbreviated units"},
	"kubeproxy_sync_proxy_rules_iptables_total":                  {notCounter},
	"kubeproxy_sync_proxy_rules_no_local_endpoints_total":        {notCounter},
}

const (
	counterSuffix = `counter metrics should have "_total" suffix`
	notCounter    = `non-counter metrics should not have "_total" suffix`
)

// Prometheus's own parser reads the pages of all daemons, and its linter finds each metric
// with a help text and a name by its conventions.
func TestMetricsLint(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(probed)
	s.podium("create", "serviceaccount", "reader")
	s.podium("create", "clusterrolebinding", s.name, "--clusterrole=system:monitoring", "--serviceaccount="+s.name+":reader")
	t.Cleanup(func() { // t's context has ended
		if _, err := the.try(context.Background(), "", the.bin("podium"), "delete", "clusterrolebinding", s.name); err != nil {
			t.Error(err)
		}
	})
	token := strings.TrimSpace(s.podium("create", "token", "reader"))
	for name, address := range metricsPages {
		t.Run(name, func(t *testing.T) {
			page := s.within(t).metricsPage(address, token)
			problems, err := promlint.New(bytes.NewReader(page)).Lint()
			if err != nil {
				t.Fatalf("%v in\n%s", err, page)
			}
			for _, p := range problems {
				if !slices.Contains(upstreamNames[p.Metric], p.Text) {
					t.Errorf("%s: %s", p.Metric, p.Text)
				}
			}
			if n := bytes.Count(page, []byte("\n# TYPE ")); n == 0 {
				t.Errorf("no metric in\n%s", page)
			}
		})
	}
}

// metricsPage reads a page of metrics: a path of the API server or an address.
func (s *space) metricsPage(address, token string) []byte {
	s.Helper()
	if strings.HasPrefix(address, "/") {
		return []byte(s.podium("get", "--raw", address))
	}
	req, err := http.NewRequestWithContext(s.Context(), "GET", address, nil)
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	var page []byte
	resp, err := web.Do(req)
	if err == nil {
		defer resp.Body.Close()
		page, err = io.ReadAll(resp.Body)
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		s.Fatalf("get %s: %v, %.200s", address, err, page)
	}
	return page
}
