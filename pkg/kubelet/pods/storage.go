package pods

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/podspec"
	"podium/pkg/kubelet/resources"
	"podium/pkg/kubelet/volumes"
)

// The eviction signals for limits on local storage, as in upstream's metric.
const (
	signalEmptyDir  = "emptydirfs.limit"
	signalPod       = "ephemeralpodfs.limit"
	signalContainer = "ephemeralcontainerfs.limit"
)

// storage is the disk usage of a pod in bytes.
type storage struct {
	volumes    map[string]int64 // by volume
	containers map[string]int64 // by container: its writable layer and its logs
	files      int64            // the kubelet's other files of the pod: termination messages and /etc/hosts
}

func (s *storage) total() int64 {
	sum := s.files
	for _, n := range s.volumes {
		sum += n
	}
	for _, n := range s.containers {
		sum += n
	}
	return sum
}

// measureStorage starts a job every measurePeriod that measures a pod with limits on
// local storage and evicts it if it exceeds one.
func (w *worker) measureStorage(now time.Time) {
	if !limitsStorage(w.pod) {
		return
	}
	if due := w.measured.Add(measurePeriod); now.Before(due) {
		w.again(due)
		return
	}
	w.measured = now
	pod := w.pod
	w.job(w.startCtx, "measure", func(ctx context.Context) func() {
		used, err := w.m.storage(ctx, pod, false)
		if err != nil && ctx.Err() == nil {
			w.log.Warn("measure local storage failed", "error", err)
		}
		e := exceeds(pod, used)
		if e == nil {
			return nil
		}
		return func() { w.evict(*e) }
	})
	w.again(now.Add(measurePeriod))
}

func limitsStorage(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if volumes.SizeLimit(&pod.Spec.Volumes[i]) != nil {
			return true
		}
	}
	limit := resources.StorageLimit(pod)
	return limit.Sign() > 0
}

// exceeds compares the usage of a pod with its limits, in upstream's order and with
// upstream's messages. It returns nil if no limit is exceeded.
func exceeds(pod *corev1.Pod, used storage) *eviction {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if limit := volumes.SizeLimit(v); over(used.volumes[v.Name], limit) {
			return &eviction{signal: signalEmptyDir, message: fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, limit.String())}
		}
	}
	if limit := resources.StorageLimit(pod); over(used.total(), &limit) {
		return &eviction{signal: signalPod, message: fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", limit.String())}
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if limit := c.Resources.Limits.StorageEphemeral(); over(used.containers[c.Name], limit) {
			return &eviction{signal: signalContainer, message: fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, limit.String())}
		}
	}
	return nil
}

// over reports whether a limit exists and is exceeded.
func over(used int64, limit *resource.Quantity) bool {
	return limit != nil && limit.Sign() > 0 && used > limit.Value()
}

// storage measures the pod's disk usage: only the volumes of a pod without limits, unless
// all is set. With an error it returns what could be measured, which is a lower bound.
func (m *Manager) storage(ctx context.Context, pod *corev1.Pod, all bool) (storage, error) {
	s := storage{containers: map[string]int64{}}
	var err error
	if s.volumes, err = m.cfg.Volumes.Usage(ctx, pod); err != nil {
		return s, err
	}
	if limit := resources.StorageLimit(pod); limit.Sign() <= 0 && !all {
		return s, nil
	}
	layers, err := m.writableLayers(ctx, pod)
	errs := []error{err}
	for c := range podspec.Containers(pod) {
		logged, err := volumes.DiskUsage(ctx, filepath.Join(m.logDir(pod), c.Name))
		errs = append(errs, err)
		s.containers[c.Name] = layers[c.Name] + logged
	}
	// Containers can write to these, too: CVE-2020-8557.
	messages, err := volumes.DiskUsage(ctx, filepath.Join(m.podDir(pod.UID), "containers"))
	errs = append(errs, err)
	hosts, err := volumes.FileUsage(m.hostsPath(pod.UID))
	s.files = messages + hosts
	return s, errors.Join(append(errs, err)...)
}

// writableLayers returns the sizes of the containers' writable layers. As upstream,
// it counts only the newest of several containers with the same name.
func (m *Manager) writableLayers(ctx context.Context, pod *corev1.Pod) (map[string]int64, error) {
	all, err := cri.ListStats(ctx, m.cfg.Runtime, &runtimeapi.ContainerStatsFilter{LabelSelector: map[string]string{cri.LabelPodUID: string(pod.UID)}})
	if err != nil {
		return nil, fmt.Errorf("list container stats: %w", err)
	}
	sizes, newest := map[string]int64{}, map[string]uint32{}
	for _, s := range all {
		a := s.GetAttributes()
		name, attempt := a.GetLabels()[cri.LabelContainerName], a.GetMetadata().GetAttempt()
		if before, seen := newest[name]; seen && before > attempt {
			continue
		}
		newest[name], sizes[name] = attempt, int64(s.GetWritableLayer().GetUsedBytes().GetValue())
	}
	return sizes, nil
}
