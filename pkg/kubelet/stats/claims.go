package stats

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// claimSeries are the metrics of the volumes of claims, with upstream's names.
var claimSeries = []struct {
	desc  *prometheus.Desc
	value func(*Filesystem) *uint64
}{
	{claimDesc("capacity_bytes", "Capacity in bytes of the volume"), func(f *Filesystem) *uint64 { return f.CapacityBytes }},
	{claimDesc("available_bytes", "Number of available bytes in the volume"), func(f *Filesystem) *uint64 { return f.AvailableBytes }},
	{claimDesc("used_bytes", "Number of used bytes in the volume"), func(f *Filesystem) *uint64 { return f.UsedBytes }},
	{claimDesc("inodes", "Maximum number of inodes in the volume"), func(f *Filesystem) *uint64 { return f.Inodes }},
	{claimDesc("inodes_free", "Number of free inodes in the volume"), func(f *Filesystem) *uint64 { return f.InodesFree }},
	{claimDesc("inodes_used", "Number of used inodes in the volume"), func(f *Filesystem) *uint64 { return f.InodesUsed }},
}

func claimDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("kubelet_volume_stats_"+name, help, []string{"namespace", "persistentvolumeclaim"}, nil)
}

// Claims is a prometheus.Collector of the volumes of claims, for /metrics.
type Claims struct {
	Pods   func() []*corev1.Pod
	Volume func(pod types.UID, volume string) (Filesystem, bool) // as in Collector
}

// Describe implements prometheus.Collector.
func (c *Claims) Describe(out chan<- *prometheus.Desc) {
	for _, s := range claimSeries {
		out <- s.desc
	}
}

// Collect implements prometheus.Collector. A claim that several pods use counts once.
func (c *Claims) Collect(out chan<- prometheus.Metric) {
	seen := map[ClaimRef]bool{}
	for _, pod := range c.Pods() {
		for _, v := range volumes(pod, c.Volume) {
			if v.PVC == nil || seen[*v.PVC] {
				continue
			}
			seen[*v.PVC] = true
			for _, s := range claimSeries {
				if is := s.value(&v.Filesystem); is != nil {
					out <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, float64(*is), v.PVC.Namespace, v.PVC.Name)
				}
			}
		}
	}
}
