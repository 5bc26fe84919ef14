package csi

import (
	"context"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/backoff"
	"podium/pkg/kubelet/stats"
)

// statsPeriod is upstream's default period of measuring volumes.
const statsPeriod = time.Minute

// measured are the published volumes, by pod and name in the pod, and their last
// statistics.
type measured struct {
	mu   sync.Mutex
	pods map[types.UID]map[string]*published
}

type published struct {
	record record
	target string
	last   *stats.Filesystem // nil: not measured
}

// add records a volume that is published to a pod.
func (m *measured) add(v *volume, target string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	uid, name := v.pod.Pod.UID, v.pod.Spec.Name
	if m.pods[uid] == nil {
		m.pods[uid] = map[string]*published{}
	}
	if m.pods[uid][name] == nil {
		m.pods[uid][name] = &published{record: v.record, target: target}
	}
}

// remove forgets what is published at a target.
func (m *measured) remove(pod types.UID, target string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, p := range m.pods[pod] {
		if p.target == target {
			delete(m.pods[pod], name)
		}
	}
	if len(m.pods[pod]) == 0 {
		delete(m.pods, pod)
	}
}

// Stats returns the last statistics of a volume by its name in the pod. It does not block.
func (d *Driver) Stats(pod types.UID, volume string) (stats.Filesystem, bool) {
	d.measured.mu.Lock()
	defer d.measured.mu.Unlock()
	p := d.measured.pods[pod][volume]
	if p == nil || p.last == nil {
		return stats.Filesystem{}, false
	}
	return *p.last, true
}

// measure measures all volumes periodically until ctx ends. The drivers are independent of
// each other: one that hangs delays only its own volumes.
func (d *Driver) measure(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	busy := map[string]chan struct{}{}
	for backoff.Sleep(ctx, statsPeriod) == nil {
		byDriver := map[string][]*published{}
		d.measured.mu.Lock()
		for _, volumes := range d.measured.pods {
			for _, p := range volumes {
				byDriver[p.record.Driver] = append(byDriver[p.record.Driver], p)
			}
		}
		d.measured.mu.Unlock()
		for driver, volumes := range byDriver {
			if before := busy[driver]; before != nil {
				select {
				case <-before:
				default:
					continue
				}
			}
			done := make(chan struct{})
			busy[driver] = done
			running.Go(func() {
				defer close(done)
				d.measureAll(ctx, driver, volumes)
			})
		}
	}
}

// measureAll asks one driver about its volumes.
func (d *Driver) measureAll(ctx context.Context, driver string, volumes []*published) {
	s, err := d.open(driver)
	if err != nil {
		return // it is not registered now
	}
	defer s.close()
	if err := s.learn(ctx); err != nil || !s.calls[spec.NodeServiceCapability_RPC_GET_VOLUME_STATS] {
		return
	}
	for _, p := range volumes {
		req := &spec.NodeGetVolumeStatsRequest{VolumeId: p.record.Handle, VolumePath: p.target}
		if s.stages() && p.record.persistent() {
			req.StagingTargetPath = d.stagePlace(&p.record).target
		}
		resp, err := s.NodeGetVolumeStats(ctx, req)
		if err != nil {
			d.Log.Debug("measure CSI volume failed", "driver", driver, "volume", p.record.Volume, "error", err)
			continue
		}
		fs := filesystem(resp, time.Now())
		d.measured.mu.Lock()
		p.last = &fs
		d.measured.mu.Unlock()
	}
}

// filesystem translates a driver's statistics. It leaves out negative numbers.
func filesystem(resp *spec.NodeGetVolumeStatsResponse, now time.Time) stats.Filesystem {
	out := stats.Filesystem{Time: metav1.NewTime(now)}
	number := func(n int64) *uint64 {
		if n < 0 {
			return nil
		}
		return new(uint64(n))
	}
	for _, u := range resp.GetUsage() {
		switch u.GetUnit() {
		case spec.VolumeUsage_BYTES:
			out.AvailableBytes, out.CapacityBytes, out.UsedBytes = number(u.Available), number(u.Total), number(u.Used)
		case spec.VolumeUsage_INODES:
			out.InodesFree, out.Inodes, out.InodesUsed = number(u.Available), number(u.Total), number(u.Used)
		}
	}
	return out
}
