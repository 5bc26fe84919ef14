package pods

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// Metrics are the package's series, under upstream's names.
type Metrics struct {
	startDuration     prometheus.Histogram
	runDuration       prometheus.Histogram
	startedPods       prometheus.Counter
	startedContainers *prometheus.CounterVec
	runningPods       prometheus.Gauge
	runningContainers *prometheus.GaugeVec
	relistDuration    prometheus.Histogram
	evictions         *prometheus.CounterVec
}

// NewMetrics registers the series.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		startDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_start_duration_seconds", Help: "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run.",
			Buckets: []float64{.1, .2, .3, .5, 1, 2, 3, 5, 10, 30, 60, 120, 300},
		}),
		runDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_start_sli_duration_seconds", Help: "Duration in seconds from the creation of a pod to its containers running.",
			Buckets: []float64{.1, .2, .3, .5, 1, 2, 3, 5, 10, 30, 60, 120, 300},
		}),
		startedPods: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_started_pods_total", Help: "Cumulative number of pods started.",
		}),
		startedContainers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_started_containers_total", Help: "Cumulative number of containers started.",
		}, []string{"container_type"}),
		runningPods: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_running_pods", Help: "Number of pods that have a running pod sandbox.",
		}),
		runningContainers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_running_containers", Help: "Number of containers by state.",
		}, []string{"container_state"}),
		relistDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pleg_relist_duration_seconds", Help: "Duration in seconds of listing the runtime's pods and containers.", Buckets: prometheus.DefBuckets,
		}),
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_evictions", Help: "Cumulative number of pod evictions by eviction signal.",
		}, []string{"eviction_signal"}),
	}
	r.MustRegister(m.evictions, m.startDuration, m.runDuration, m.startedPods, m.startedContainers, m.runningPods, m.runningContainers, m.relistDuration)
	return m
}

func (m *Metrics) podStarted(pod *corev1.Pod, seen, now time.Time) {
	if m == nil {
		return
	}
	m.startedPods.Inc()
	m.startDuration.Observe(now.Sub(seen).Seconds())
	m.runDuration.Observe(now.Sub(pod.CreationTimestamp.Time).Seconds())
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
