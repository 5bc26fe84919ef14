package pods

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/prom"
)

// Metrics are the metrics of the package, with upstream's names. A nil *Metrics
// counts nothing.
type Metrics struct {
	startDuration     prometheus.Histogram
	runDuration       prometheus.Histogram
	startedPods       prometheus.Counter
	startedContainers *prometheus.CounterVec
	runningPods       prometheus.Gauge
	runningContainers *prometheus.GaugeVec
	relistDuration    prometheus.Histogram
	evictions         *prometheus.CounterVec

	imagesRequested, imagesMounted, imagesFailed prometheus.Counter // image volumes
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	f := prom.For(r)
	return &Metrics{
		startDuration:     f.Histogram("kubelet_pod_start_duration_seconds", "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run.", []float64{.1, .2, .3, .5, 1, 2, 3, 5, 10, 30, 60, 120, 300}),
		runDuration:       f.Histogram("kubelet_pod_start_sli_duration_seconds", "Duration in seconds from the creation of a pod without persistent volumes to its containers running, without the time to pull images and to run init containers.", []float64{.1, .2, .3, .5, 1, 2, 3, 5, 10, 30, 60, 120, 300}),
		startedPods:       f.Counter("kubelet_started_pods_total", "Cumulative number of pods started."),
		startedContainers: f.CounterVec("kubelet_started_containers_total", "Cumulative number of containers started.", "container_type"),
		runningPods:       f.Gauge("kubelet_running_pods", "Number of pods that have a running pod sandbox."),
		runningContainers: f.GaugeVec("kubelet_running_containers", "Number of containers by state.", "container_state"),
		relistDuration:    f.Histogram("kubelet_pleg_relist_duration_seconds", "Duration in seconds of listing the runtime's pods and containers.", prometheus.DefBuckets),
		evictions:         f.CounterVec("kubelet_evictions", "Cumulative number of pod evictions by eviction signal.", "eviction_signal"),
		imagesRequested:   f.Counter("kubelet_image_volume_requested_total", "Number of requested image volumes."),
		imagesMounted:     f.Counter("kubelet_image_volume_mounted_succeed_total", "Number of successful image volume mounts."),
		imagesFailed:      f.Counter("kubelet_image_volume_mounted_errors_total", "Number of failed image volume mounts."),
	}
}

// podStarted counts a pod that runs for the first time. It took since the kubelet has seen it
// and, without what upstream's SLI leaves out, since it was created.
func (m *Metrics) podStarted(pod *corev1.Pod, sinceSeen, sinceCreated time.Duration) {
	if m == nil {
		return
	}
	m.startedPods.Inc()
	m.startDuration.Observe(sinceSeen.Seconds())
	if stateless(pod) {
		m.runDuration.Observe(max(sinceCreated, 0).Seconds())
	}
}

// stateless reports whether the pod has no volumes other than those that the SLI of the start
// of pods allows.
// https://github.com/kubernetes/community/blob/master/sig-scalability/slos/pod_startup_latency.md
func stateless(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Secret == nil && v.ConfigMap == nil && v.DownwardAPI == nil && v.Projected == nil && v.EmptyDir == nil
	})
}

func (m *Metrics) containerStarted(init bool) {
	if m == nil {
		return
	}
	kind := "container"
	if init {
		kind = "init_container"
	}
	m.startedContainers.WithLabelValues(kind).Inc()
}

// imageVolumes counts the n image volumes of a container; err is that of its creation.
func (m *Metrics) imageVolumes(n int, err error) {
	if m == nil {
		return
	}
	m.imagesRequested.Add(float64(n))
	if err != nil {
		m.imagesFailed.Add(float64(n))
		return
	}
	m.imagesMounted.Add(float64(n))
}

func (m *Metrics) evicted(signal string) {
	if m != nil {
		m.evictions.WithLabelValues(signal).Inc()
	}
}

func (m *Metrics) relisted(took time.Duration) {
	if m != nil {
		m.relistDuration.Observe(took.Seconds())
	}
}

func (m *Metrics) runningNow(pods, containers int) {
	if m == nil {
		return
	}
	m.runningPods.Set(float64(pods))
	m.runningContainers.WithLabelValues("running").Set(float64(containers))
}
