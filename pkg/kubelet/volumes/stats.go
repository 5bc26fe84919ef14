package volumes

import (
	"context"
	"io"
	"os"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/stats"
)

// statsPeriod is upstream's default period of measuring volumes.
const statsPeriod = time.Minute

// gauge measures a volume that is ready.
type gauge struct {
	measure func(context.Context) (stats.Filesystem, error)
	busy    atomic.Bool
	last    atomic.Pointer[stats.Filesystem] // nil: not measured
}

// gauge returns how a volume is measured; nil: it has no statistics. As upstream, a
// hostPath volume has none, neither a pod's own nor a claim's.
func (m *Manager) gauge(d Driver, v *Volume, mount Mount) *gauge {
	switch {
	case mount.local && mount.Device:
		return &gauge{measure: func(context.Context) (stats.Filesystem, error) { return m.deviceStats(mount.HostPath) }}
	case mount.local:
		return &gauge{measure: func(context.Context) (stats.Filesystem, error) { return m.fsStats(mount.HostPath) }}
	}
	if _, ok := d.(DiskUser); !ok {
		return nil
	}
	return &gauge{measure: func(ctx context.Context) (stats.Filesystem, error) { return m.treeStats(ctx, v.Dir) }}
}

// fsStats returns the statistics of the file system that a directory is in.
func (m *Manager) fsStats(dir string) (stats.Filesystem, error) {
	return stats.OfFilesystem(dir, metav1.NewTime(m.Now()))
}

// treeStats returns what a directory uses of the file system that it is in.
func (m *Manager) treeStats(ctx context.Context, dir string) (stats.Filesystem, error) {
	select {
	case m.walking <- struct{}{}:
		defer func() { <-m.walking }()
	case <-ctx.Done():
		return stats.Filesystem{}, ctx.Err()
	}
	out, err := m.fsStats(dir)
	if err != nil {
		return out, err
	}
	used, err := usageOf(ctx, dir)
	out.UsedBytes, out.InodesUsed = new(uint64(used.bytes)), &used.inodes
	return out, err
}

// deviceStats returns the size of a block device; its usage is not known.
func (m *Manager) deviceStats(path string) (stats.Filesystem, error) {
	f, err := os.Open(path)
	if err != nil {
		return stats.Filesystem{}, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	return stats.Filesystem{Time: metav1.NewTime(m.Now()), CapacityBytes: new(uint64(size))}, err
}

// Stats returns the last statistics of a volume by its name in the pod. It does not block.
func (m *Manager) Stats(pod types.UID, volume string) (stats.Filesystem, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range m.pods[pod] {
		if g := v.gauge.Load(); g != nil && v.name == volume {
			if last := g.last.Load(); last != nil {
				return *last, true
			}
		}
	}
	return stats.Filesystem{}, false
}

// Measure measures each volume when it has become ready and then periodically, until ctx
// ends.
func (m *Manager) Measure(ctx context.Context) {
	tick := time.NewTicker(statsPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.unmeasured:
			m.measure(ctx, true)
		case <-tick.C:
			m.measure(ctx, false)
		}
	}
}

// measure starts the measurement of all volumes, or only of those that have not been
// measured. Nothing waits for the measurements, because a file system that does not answer
// blocks its own until it answers, even after ctx has ended.
func (m *Manager) measure(ctx context.Context, onlyNew bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, volumes := range m.pods {
		for _, v := range volumes {
			g := v.gauge.Load()
			if g == nil || onlyNew && g.last.Load() != nil || !g.busy.CompareAndSwap(false, true) {
				continue
			}
			go func() {
				defer g.busy.Store(false)
				out, err := g.measure(ctx)
				if err != nil {
					m.Log.Debug("measure volume failed", "pod", v.pod, "volume", v.name, "error", err)
					return
				}
				g.last.Store(&out)
			}()
		}
	}
}

// isReady records what a set-up has returned, and has the volume measured.
func (m *Manager) isReady(d Driver, v *Volume, spec *corev1.Volume, mount Mount) Mount {
	mount.pod, mount.volume, mount.key = v.pod, spec.Name, volumeKey(d.Name(), spec.Name)
	v.ready = &mount
	v.gauge.Store(m.gauge(d, v, mount))
	select {
	case m.unmeasured <- struct{}{}:
	default:
	}
	return mount
}
