package pods

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/kubelet/cri/crifake"
	"podium/pkg/kubelet/volumes"
)

// slowDriver is the driver of nfs volumes. Its SetUp blocks until the volume's attempt
// is released, like a CSI driver that stages a disk. Staged volumes are on disk and
// survive the kubelet.
type slowDriver struct {
	mu      sync.Mutex
	release chan struct{}
	fail    error
	calls   []string
}

func (d *slowDriver) note(call string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, call)
}

// answer makes current and later attempts end with err.
func (d *slowDriver) answer(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = err
	if d.release != nil {
		close(d.release)
		d.release = nil
	}
}

func (*slowDriver) Name() string                   { return "test~slow" }
func (*slowDriver) Supports(v *corev1.Volume) bool { return v.NFS != nil }

func (d *slowDriver) SetUp(ctx context.Context, v *volumes.Volume) (volumes.Mount, error) {
	d.note("stage " + v.Spec.Name)
	if err := os.MkdirAll(v.Dir, 0o755); err != nil {
		return volumes.Mount{}, err
	}
	d.mu.Lock()
	release := d.release
	d.mu.Unlock()
	if release != nil {
		select {
		case <-release:
		case <-ctx.Done():
			d.note("stage canceled")
			return volumes.Mount{}, ctx.Err()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return volumes.Mount{HostPath: v.Dir}, d.fail
}

func (d *slowDriver) TearDown(_ context.Context, v *volumes.Volume) error {
	d.note("unstage " + filepath.Base(v.Dir))
	return os.Remove(v.Dir)
}

// slowBubble runs a test on a node whose driver of nfs volumes blocks until answer.
func slowBubble(t *testing.T, f func(r *rig, d *slowDriver)) {
	t.Helper()
	bubble(t, crifake.Config{}, func(r *rig) {
		d := &slowDriver{release: make(chan struct{})}
		r.tweak = func(c *Config) {
			c.Volumes = volumes.New(volumes.Config{Root: r.dir, Sources: r.api, Mounter: volumes.Unmounted{}, Drivers: []volumes.Driver{d}})
		}
		r.restart()
		r.api.create(newPod("a", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{
				{Name: "disk", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "disk", MountPath: "/disk"}, {Name: "scratch", MountPath: "/scratch"}}
		}))
		r.pass(3 * time.Minute)
		f(r, d)
	})
}

func (d *slowDriver) expect(t *testing.T, want ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if diff := cmp.Diff(want, d.calls); diff != "" {
		t.Errorf("calls of the driver (-want +got):\n%s", diff)
	}
	d.calls = nil
}

func TestSlowSetUpDelaysOnlyTheContainers(t *testing.T) {
	slowBubble(t, func(r *rig, d *slowDriver) {
		p := r.pod("a")
		if w := p.Status.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "ContainerCreating" || p.Status.PodIP == "" {
			t.Errorf("while the volume is being set up the status is %+v", p.Status)
		}
		if _, err := os.Stat(filepath.Join(r.dir, "pods", string(p.UID), "volumes/kubernetes.io~empty-dir/scratch")); err != nil {
			t.Errorf("the other volume waits for the slow one: %v", err)
		}
		r.api.change("a", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(3600)) })
		d.answer(nil)
		r.pass(time.Second)
		if p := r.pod("a"); p.Status.Phase != corev1.PodRunning {
			t.Errorf("the pod is %+v", p.Status)
		}
		d.expect(t, "stage disk")
		want := []string{"Unable to attach or mount volumes: unmounted volumes=[disk]: timed out waiting for the condition"}
		if diff := cmp.Diff(want, r.api.eventsOf("FailedMount")); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		r.api.change("a", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(1)) })
		r.pass(time.Minute)
		if p := r.pod("a"); p.Status.Reason != "DeadlineExceeded" {
			t.Errorf("the pod is %+v", p.Status)
		}
		d.expect(t, "unstage disk")
	})
}

func TestPodIsDeletedDuringSetUp(t *testing.T) {
	slowBubble(t, func(r *rig, d *slowDriver) {
		r.api.deleteGracefully("a", 30)
		r.pass(2 * time.Second)
		if !r.gone("a") || len(r.calls("CreateContainer")) > 0 {
			t.Errorf("gone %t, containers %v", r.gone("a"), r.calls("CreateContainer"))
		}
		d.expect(t, "stage disk", "stage canceled", "unstage disk")
	})
}

func TestPodFailsDuringSetUp(t *testing.T) {
	slowBubble(t, func(r *rig, d *slowDriver) {
		r.api.change("a", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr(int64(200)) })
		r.pass(time.Minute)
		if p := r.pod("a"); p.Status.Phase != corev1.PodFailed || p.Status.Reason != "DeadlineExceeded" {
			t.Errorf("the pod is %+v", p.Status)
		}
		d.expect(t, "stage disk", "stage canceled", "unstage disk")
	})
}

func TestKubeletRestartsDuringSetUp(t *testing.T) {
	slowBubble(t, func(r *rig, d *slowDriver) {
		r.restart()
		r.pass(time.Minute)
		d.expect(t, "stage disk", "stage canceled", "stage disk")
		d.answer(nil)
		r.pass(time.Second)
		if p := r.pod("a"); p.Status.Phase != corev1.PodRunning || len(r.calls("RunPodSandbox")) != 1 {
			t.Errorf("the pod is %+v", p.Status)
		}
		d.expect(t)

		// A pod that is deleted while no kubelet runs leaves its volume on disk.
		r.stop()
		r.api.drop("a")
		r.start()
		r.pass(2 * time.Minute)
		d.expect(t, "unstage disk")
	})
}

func TestFailedSetUpIsRetried(t *testing.T) {
	slowBubble(t, func(r *rig, d *slowDriver) {
		d.answer(errors.New("no such export"))
		r.pass(time.Minute)
		events := r.api.eventsOf("FailedMount")[1:] // after the one of the slow set-up
		if len(events) < 6 || len(events) > 12 || events[0] != `MountVolume.SetUp failed for volume "disk" : no such export` {
			t.Errorf("%d events: %v", len(events), events)
		}
		d.answer(nil)
		r.pass(maxMountDelay + time.Second)
		if p := r.pod("a"); p.Status.Phase != corev1.PodRunning {
			t.Errorf("the pod is %+v", p.Status)
		}
		if names := strings.Join(events, " "); strings.Contains(names, "scratch") {
			t.Errorf("the good volume failed: %s", names)
		}
	})
}
