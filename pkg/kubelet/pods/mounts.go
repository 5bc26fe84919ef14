package pods

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/volumes"
)

// Volumes sets up, refreshes and tears down the volumes of pods.
type Volumes interface {
	SetUp(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (volumes.Mount, error)
	Refreshes(pod *corev1.Pod, v *corev1.Volume) bool
	TearDown(ctx context.Context, uid types.UID) error
	Orphans() ([]types.UID, error)
	SubPath(ctx context.Context, mount volumes.Mount, subPath string) (hostPath string, err error)
	Usage(ctx context.Context, pod *corev1.Pod) (map[string]int64, error)
}

// References follows the objects that the volumes of pods show: from Follow until Forget,
// or until ctx ends, it calls Manager.Refresh when one of them has changed. Forget may be
// called again.
type References interface {
	Follow(ctx context.Context, pod *corev1.Pod)
	Forget(uid types.UID)
}

// The back-off of a volume that could not be set up.
const (
	minMountDelay = 500 * time.Millisecond
	maxMountDelay = 10 * time.Second
)

// slowMount is how long the set-up of a volume may last before an event reports it.
const slowMount = 2*time.Minute + 3*time.Second

// mounts sets up and refreshes the volumes of a pod.
type mounts struct {
	*base
	volumes map[string]*mount // by name
}

// mount is the state of one volume. A driver may take minutes to set up a volume,
// so each attempt and each refresh is a job of the worker: meanwhile the pod can be
// changed, killed and deleted.
type mount struct {
	ready       *volumes.Mount // nil: not set up by this process
	attempted   time.Time      // when the last set-up or refresh started
	reported    time.Time      // when an event last said that the set-up lasts long; else attempted
	renderedPod *corev1.Pod    // the pod whose fields the contents show
	outdated    bool           // an object that it shows has changed since
}

// setUpAll starts a job for each volume of the pod that is not ready. It returns
// true when all are ready.
func (ms *mounts) setUpAll() bool {
	now, ready := time.Now(), true
	for _, v := range volumes.Mounted(ms.pod) {
		if ms.mount(v.Name).ready == nil {
			ms.setUp(v, false, now)
			ready = false
		}
	}
	return ready
}

// refresh starts jobs that update the contents of volumes: every RefreshPeriod, when
// an object has changed, and when the pod's labels or annotations change, since volumes
// may show them. It leaves out volumes that are not ready, unless started says that the
// containers whose turn it is have been started: then an earlier kubelet has set up all
// volumes, and the first refresh also makes them ready.
func (ms *mounts) refresh(now time.Time, started bool) {
	stale := ms.takeStale()
	for _, v := range volumes.Mounted(ms.pod) {
		if !ms.m.cfg.Volumes.Refreshes(ms.pod, v) {
			continue
		}
		m := ms.mount(v.Name)
		m.outdated = m.outdated || stale
		if m.ready == nil && !started {
			continue
		}
		due := m.attempted.Add(ms.m.cfg.RefreshPeriod)
		if m.outdated || !now.Before(due) || relabelled(m.renderedPod, ms.pod) {
			ms.setUp(v, true, now)
			due = now.Add(ms.m.cfg.RefreshPeriod)
		}
		ms.again(due)
	}
}

// mount returns the state of a volume and creates it on the first call.
func (ms *mounts) mount(volume string) *mount {
	m := ms.volumes[volume]
	if m == nil {
		m = &mount{}
		ms.volumes[volume] = m
	}
	return m
}

// setUp starts the job that sets up or refreshes a volume. It does nothing while
// that job runs or backs off after a failure.
func (ms *mounts) setUp(v *corev1.Volume, refresh bool, now time.Time) {
	key := "volume " + v.Name
	m, pod := ms.mount(v.Name), ms.pod
	if ms.busy(key) {
		if !refresh {
			ms.reportSlow(v, m, now)
		}
		return // the job's end wakes the worker
	}
	if !ms.retries.due(key, now) {
		return // the retry wakes the worker
	}
	m.attempted, m.reported, m.renderedPod, m.outdated = now, now, pod, false
	ms.job(ms.startCtx, key, func(ctx context.Context) func() {
		made, err := ms.m.cfg.Volumes.SetUp(ctx, pod, v)
		if ctx.Err() != nil {
			return nil
		}
		return func() { ms.mounted(v, m, refresh, made, err) }
	})
}

// reportSlow sends an event for a set-up that does not end, once per slowMount: the
// driver, or the file system under the volume, may have stopped answering.
func (ms *mounts) reportSlow(v *corev1.Volume, m *mount, now time.Time) {
	if !now.Before(m.reported.Add(slowMount)) {
		m.reported = now
		ms.event(corev1.EventTypeWarning, "FailedMount", fmt.Sprintf("Unable to attach or mount volumes: unmounted volumes=[%s]: timed out waiting for the condition", v.Name))
	}
	ms.again(m.reported.Add(slowMount))
}

// mounted handles the result of setUp.
func (ms *mounts) mounted(v *corev1.Volume, m *mount, refresh bool, made volumes.Mount, err error) {
	key := "volume " + v.Name
	switch {
	case err == nil:
		m.ready = &made
		ms.retries.ok(key)
	case refresh:
		ms.log.Warn("refresh volume failed", "volume", v.Name, "error", err)
	default:
		ms.log.Warn("set up volume failed", "volume", v.Name, "error", err)
		ms.event(corev1.EventTypeWarning, "FailedMount", err.Error())
		ms.retries.fail(key, time.Now(), minMountDelay, maxMountDelay)
	}
}

// relabelled reports whether the pod's labels or annotations changed; false if
// before is nil.
func relabelled(before, now *corev1.Pod) bool {
	return before != nil && (!maps.Equal(before.Labels, now.Labels) || !maps.Equal(before.Annotations, now.Annotations))
}
