package controllers

import (
	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/controllers/cronjob"
	"podium/pkg/controllers/ephemeralvolume"
	"podium/pkg/controllers/horizontalpodautoscaler"
	"podium/pkg/controllers/job"
	"podium/pkg/controllers/nodelifecycle"
	"podium/pkg/controllers/podgc"
	"podium/pkg/controllers/resourceclaim"
	"podium/pkg/controllers/statefulset"
	"podium/pkg/controllers/ttlafterfinished"
)

// metrics are the metrics of single controllers. They are created once for the process: its
// controllers are built again whenever it becomes the leader.
type metrics struct {
	job              *job.Metrics
	cronJob          *cronjob.Metrics
	ttlAfterFinished *ttlafterfinished.Metrics
	autoscaling      *horizontalpodautoscaler.Metrics
	ephemeralVolume  *ephemeralvolume.Metrics
	podGC            *podgc.Metrics
	resourceClaim    *resourceclaim.Metrics
	statefulSet      *statefulset.Metrics
	nodeLifecycle    *nodelifecycle.Metrics
}

func newMetrics(r prometheus.Registerer) metrics {
	return metrics{
		job.NewMetrics(r), cronjob.NewMetrics(r), ttlafterfinished.NewMetrics(r),
		horizontalpodautoscaler.NewMetrics(r), ephemeralvolume.NewMetrics(r), podgc.NewMetrics(r),
		resourceclaim.NewMetrics(r), statefulset.NewMetrics(r), nodelifecycle.NewMetrics(r),
	}
}
