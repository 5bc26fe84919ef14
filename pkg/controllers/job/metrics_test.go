package job

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetricsHaveUpstreamsNames(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	v := observe(newJob(3, 3, perIndex(0)), makePods("s0 f1 r2"), now)
	p := decide(v, 0)
	m.synced(v, p, now, nil)
	m.synced(v, plan{create: []int{1}}, now, errors.New("no"))
	m.made(v, 2, 1)
	m.wrote(v, nextStatus(v, p, 0))
	m.podChanged(nil, v.pods[0])
	m.podChanged(v.pods[0], nil)
	const want = `
# HELP job_controller_job_finished_indexes_total Completion indexes that have finished
# TYPE job_controller_job_finished_indexes_total counter
job_controller_job_finished_indexes_total{backoffLimit="perIndex",status="failed"} 1
job_controller_job_finished_indexes_total{backoffLimit="perIndex",status="succeeded"} 1
# HELP job_controller_job_pods_creation_total Pods that were created for jobs, or could not be
# TYPE job_controller_job_pods_creation_total counter
job_controller_job_pods_creation_total{reason="recreate_terminating_or_failed",status="failed"} 1
job_controller_job_pods_creation_total{reason="recreate_terminating_or_failed",status="succeeded"} 1
# HELP job_controller_job_syncs_total Reconciles of jobs
# TYPE job_controller_job_syncs_total counter
job_controller_job_syncs_total{action="pods_created",completion_mode="Indexed",result="error"} 1
job_controller_job_syncs_total{action="reconciling",completion_mode="Indexed",result="success"} 1
# HELP job_controller_terminated_pods_tracking_finalizer_total Terminated pods that got (add) and lost (delete) the finalizer of job tracking
# TYPE job_controller_terminated_pods_tracking_finalizer_total counter
job_controller_terminated_pods_tracking_finalizer_total{event="add"} 1
job_controller_terminated_pods_tracking_finalizer_total{event="delete"} 1
`
	err := testutil.GatherAndCompare(registry, strings.NewReader(want), "job_controller_job_finished_indexes_total",
		"job_controller_job_pods_creation_total", "job_controller_job_syncs_total", "job_controller_terminated_pods_tracking_finalizer_total")
	if err != nil {
		t.Error(err)
	}
}
