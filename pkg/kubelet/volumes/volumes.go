package volumes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/podspec"
)

// Sources reads objects for the contents of volumes from the API. Errors are
// *apierrors.StatusError or those of the connection.
type Sources interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
	// HoldVolume adds the finalizer volumebinding.LocalPath to a volume, if it has not changed.
	HoldVolume(ctx context.Context, v *corev1.PersistentVolume) error
	Token(ctx context.Context, namespace, serviceAccount string, req *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// Config holds the dependencies of a Manager.
type Config struct {
	Root    string              // the kubelet's --root-dir
	Sources Sources             // required
	Mounter Mounter             // nil: Kernel
	Node    func() *corev1.Node // for allocatable resources; nil, or a nil result: limits have no default
	Log     *slog.Logger        // nil: discarded
	Now     func() time.Time    // nil: time.Now
	Drivers []Driver            // take precedence over those of this package
}

// Manager owns the volume directories of all pods of a node. It is safe for
// concurrent use. Calls for one volume wait for each other; TearDown waits for all
// volumes of its pod.
type Manager struct {
	Config
	drivers []Driver

	mu   sync.Mutex
	pods map[types.UID]map[string]*Volume // by driver and volume; a cache: the state is on disk

	unmeasured chan struct{} // of size 1: wakes Measure
	walking    chan struct{} // of size 1: one directory is measured at a time
}

// StepError is the error of a step of a set-up, with the text of upstream's events.
type StepError struct {
	Step   string // as "MountVolume.SetUp"
	Volume string // the volume of the pod, or the persistent volume
	Err    error
}

func (e *StepError) Error() string {
	return fmt.Sprintf("%s failed for volume %q : %v", e.Step, e.Volume, e.Err)
}

func (e *StepError) Unwrap() error { return e.Err }

// New returns a Manager. It does no I/O.
func New(cfg Config) *Manager {
	if cfg.Mounter == nil {
		cfg.Mounter = Kernel{}
	}
	if cfg.Node == nil {
		cfg.Node = func() *corev1.Node { return nil }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	m := &Manager{Config: cfg, pods: map[types.UID]map[string]*Volume{}, unmeasured: make(chan struct{}, 1), walking: make(chan struct{}, 1)}
	m.drivers = drivers(&m.Config)
	return m
}

// driver returns the driver of a volume; nil if no driver supports it.
func (m *Manager) driver(v *corev1.Volume) Driver {
	for _, d := range m.drivers {
		if d.Supports(v) {
			return d
		}
	}
	return nil
}

// SetUp makes a volume of the pod ready or, if it is ready, refreshes its contents.
// It blocks as long as the driver does. The error has the text of a FailedMount
// event.
func (m *Manager) SetUp(ctx context.Context, pod *corev1.Pod, spec *corev1.Volume) (Mount, error) {
	mount, err := m.setUp(ctx, pod, spec)
	var step *StepError
	if err != nil && !errors.As(err, &step) {
		err = &StepError{Step: "MountVolume.SetUp", Volume: spec.Name, Err: err}
	}
	return mount, err
}

func (m *Manager) setUp(ctx context.Context, pod *corev1.Pod, spec *corev1.Volume) (Mount, error) {
	if err := checkUID(pod.UID); err != nil {
		return Mount{}, err
	}
	driver := m.driver(spec)
	if driver == nil {
		return Mount{}, errors.New("no volume plugin matched")
	}
	v := m.volume(pod.UID, driver.Name(), spec.Name)
	if err := v.lock(ctx); err != nil {
		return Mount{}, err
	}
	defer v.unlock()
	v.Pod, v.Spec = pod, spec
	if v.ready != nil {
		r, ok := driver.(Refresher)
		if !ok {
			return *v.ready, nil
		}
		return *v.ready, r.Refresh(ctx, v)
	}
	mount, err := driver.SetUp(ctx, v)
	if err != nil {
		return Mount{}, err
	}
	return m.isReady(driver, v, spec, mount), nil
}

// Refreshes reports whether the volume can change while the pod runs, so that SetUp is
// to be called periodically.
func (m *Manager) Refreshes(pod *corev1.Pod, v *corev1.Volume) bool {
	r, ok := m.driver(v).(Refresher)
	if s, some := r.(selective); some {
		return s.refreshes(pod)
	}
	return ok
}

// selective is a Refresher that does not refresh all of its volumes.
type selective interface {
	refreshes(pod *corev1.Pod) bool
}

// volume returns the state of a volume and creates it on the first call.
func (m *Manager) volume(uid types.UID, driver, name string) *Volume {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := volumeKey(driver, name)
	v := m.pods[uid][key]
	if v == nil {
		v = &Volume{
			Dir: m.volumeDir(uid, driver, name), StateDir: filepath.Join(m.stateDir(uid, driver), name),
			host: &m.Config, pod: uid, name: name, turn: make(chan struct{}, 1), frozen: map[string]any{}, tokens: map[tokenKey]*heldToken{},
		}
		if m.pods[uid] == nil {
			m.pods[uid] = map[string]*Volume{}
		}
		m.pods[uid][key] = v
	}
	return v
}

// Mounted returns the volumes that a container of the pod mounts, or whose block devices
// it gets, but not image volumes: the runtime mounts these itself.
func Mounted(pod *corev1.Pod) []*corev1.Volume {
	used := map[string]bool{}
	for c := range podspec.Containers(pod) {
		for _, mount := range c.VolumeMounts {
			used[mount.Name] = true
		}
		for _, device := range c.VolumeDevices {
			used[device.Name] = true
		}
	}
	var out []*corev1.Volume
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; used[v.Name] && v.Image == nil {
			out = append(out, v)
		}
	}
	return out
}

func volumeKey(driver, name string) string { return driver + "/" + name }

func (c *Config) podsDir() string               { return filepath.Join(c.Root, "pods") }
func (c *Config) podDir(uid types.UID) string   { return filepath.Join(c.podsDir(), string(uid)) }
func (c *Config) subPaths(uid types.UID) string { return filepath.Join(c.podDir(uid), subPathsDir) }
func (c *Config) stateDir(uid types.UID, driver string) string {
	return filepath.Join(c.podDir(uid), pluginsDir, driver)
}

func (c *Config) volumeDir(uid types.UID, driver, volume string) string {
	return filepath.Join(c.podDir(uid), volumesDir, driver, volume)
}

const (
	volumesDir  = "volumes"
	pluginsDir  = "plugins"
	subPathsDir = "volume-subpaths"
)

// checkUID returns an error if a uid cannot be a directory name.
func checkUID(uid types.UID) error {
	if s := string(uid); s == "" || s == "." || s == ".." || strings.ContainsAny(s, "/\x00") {
		return fmt.Errorf("pod uid %q is not usable as a directory name", s)
	}
	return nil
}
