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
)

// Sources is where the contents of volumes come from: the kubelet's view of
// the apiserver. Errors are *apierrors.StatusError.
type Sources interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	Token(ctx context.Context, namespace, serviceAccount string, req *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// Config is what a Manager works with.
type Config struct {
	Root    string              // the kubelet's --root-dir
	Sources Sources             // required
	Mounter Mounter             // nil: the kernel's
	Node    func() *corev1.Node // allocatable resources; nil, or a nil result: no fallback for limits
	Log     *slog.Logger        // nil: discarded
	Now     func() time.Time    // nil: time.Now
}

// Mount is one volume as a container may mount it.
type Mount struct {
	HostPath string
	ReadOnly bool // the volume is mounted read-only whatever the container asks

	pod    types.UID // whose it is, for SubPath
	volume string
}

// Manager owns the volume directories of all pods of a node. It is safe for
// concurrent use; calls for one pod wait for each other.
type Manager struct {
	Config

	mu   sync.Mutex
	pods map[types.UID]*podState
}

// podState is what this process knows of a pod's volumes. Losing it costs a
// few reads: what must survive is on disk.
type podState struct {
	turn   chan struct{} // of size 1: full while somebody works on the pod
	ready  map[string]Mount
	frozen map[string]any // immutable ConfigMaps and Secrets, by kind/name
	tokens map[tokenKey]*authenticationv1.TokenRequest
}

// New is a manager over cfg.Root. It touches nothing yet.
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
	return &Manager{Config: cfg, pods: map[types.UID]*podState{}}
}

// lock gives the pod's state to its caller alone. Whoever has it may be asking
// the API server something, so waiting for it ends with ctx.
func (m *Manager) lock(ctx context.Context, uid types.UID) (*podState, error) {
	m.mu.Lock()
	state := m.pods[uid]
	if state == nil {
		state = &podState{
			turn:   make(chan struct{}, 1),
			ready:  map[string]Mount{},
			frozen: map[string]any{},
			tokens: map[tokenKey]*authenticationv1.TokenRequest{},
		}
		m.pods[uid] = state
	}
	m.mu.Unlock()
	select {
	case state.turn <- struct{}{}:
		return state, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *podState) unlock() { <-s.turn }

// SetUp makes ready every volume that a container of the pod mounts, and
// returns them by name. Twice is fine. It tries all of them; the error tells of
// each that is not ready, in the words of a FailedMount event.
func (m *Manager) SetUp(ctx context.Context, pod *corev1.Pod) (map[string]Mount, error) {
	if err := checkUID(pod.UID); err != nil {
		return nil, err
	}
	state, err := m.lock(ctx, pod.UID)
	if err != nil {
		return nil, err
	}
	defer state.unlock()
	used := mounted(pod)
	mounts := make(map[string]Mount, len(used))
	var failed []string
	var cause error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if !used[v.Name] {
			continue
		}
		mount, ok := state.ready[v.Name]
		if !ok {
			if mount, err = m.setUp(ctx, state, pod, v); err != nil {
				failed = append(failed, fmt.Sprintf("MountVolume.SetUp failed for volume %q : %v", v.Name, err))
				cause = errors.Join(cause, err)
				continue
			}
			state.ready[v.Name] = mount
		}
		mounts[v.Name] = mount
	}
	if len(failed) > 0 {
		return mounts, &setUpError{strings.Join(failed, "; "), cause}
	}
	return mounts, nil
}

// setUpError has the words of the event and, below, the errors it is made of.
type setUpError struct {
	text  string
	cause error
}

func (e *setUpError) Error() string { return e.text }
func (e *setUpError) Unwrap() error { return e.cause }

// setUp makes one volume ready, by its source.
func (m *Manager) setUp(ctx context.Context, state *podState, pod *corev1.Pod, v *corev1.Volume) (Mount, error) {
	mount := Mount{pod: pod.UID, volume: v.Name}
	var err error
	switch {
	case v.EmptyDir != nil:
		mount.HostPath = m.volumeDir(pod.UID, pluginEmptyDir, v.Name)
		err = m.setUpEmptyDir(pod, v, mount.HostPath)
	case v.HostPath != nil:
		mount.HostPath = v.HostPath.Path
		err = checkHostPath(v.HostPath)
	default:
		plugin := contentPlugin(v)
		if plugin == "" {
			return Mount{}, errors.New("no volume plugin matched")
		}
		mount.ReadOnly = true
		mount.HostPath = m.volumeDir(pod.UID, plugin, v.Name)
		err = m.setUpContent(ctx, state, pod, v, mount.HostPath)
	}
	return mount, err
}

// Refresh brings the contents of the pod's configMap, secret, projected and
// downwardAPI volumes up to date. A volume that SetUp has not made ready is
// left alone; on an error the old contents stay.
func (m *Manager) Refresh(ctx context.Context, pod *corev1.Pod) error {
	if err := checkUID(pod.UID); err != nil {
		return err
	}
	state, err := m.lock(ctx, pod.UID)
	if err != nil {
		return err
	}
	defer state.unlock()
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		mount, ready := state.ready[v.Name]
		if !ready || contentPlugin(v) == "" {
			continue
		}
		if err := m.writeContent(ctx, state, pod, v, mount.HostPath); err != nil {
			errs = append(errs, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err))
		}
	}
	return errors.Join(errs...)
}

// mounted names the volumes that some container of the pod mounts.
func mounted(pod *corev1.Pod) map[string]bool {
	names := map[string]bool{}
	add := func(mounts []corev1.VolumeMount) {
		for i := range mounts {
			names[mounts[i].Name] = true
		}
	}
	for i := range pod.Spec.InitContainers {
		add(pod.Spec.InitContainers[i].VolumeMounts)
	}
	for i := range pod.Spec.Containers {
		add(pod.Spec.Containers[i].VolumeMounts)
	}
	for i := range pod.Spec.EphemeralContainers {
		add(pod.Spec.EphemeralContainers[i].VolumeMounts)
	}
	return names
}

// Upstream's directory names for its plugins.
const (
	pluginEmptyDir  = "kubernetes.io~empty-dir"
	pluginConfigMap = "kubernetes.io~configmap"
	pluginSecret    = "kubernetes.io~secret"
	pluginProjected = "kubernetes.io~projected"
	pluginDownward  = "kubernetes.io~downward-api"
)

// contentPlugin is the plugin of a volume whose files we write; "" for others.
func contentPlugin(v *corev1.Volume) string {
	switch {
	case v.ConfigMap != nil:
		return pluginConfigMap
	case v.Secret != nil:
		return pluginSecret
	case v.Projected != nil:
		return pluginProjected
	case v.DownwardAPI != nil:
		return pluginDownward
	}
	return ""
}

func (m *Manager) podsDir() string               { return filepath.Join(m.Root, "pods") }
func (m *Manager) podDir(uid types.UID) string   { return filepath.Join(m.podsDir(), string(uid)) }
func (m *Manager) subPaths(uid types.UID) string { return filepath.Join(m.podDir(uid), subPathsDir) }
func (m *Manager) emptyDirs(uid types.UID) string {
	return filepath.Join(m.podDir(uid), "plugins", pluginEmptyDir)
}

func (m *Manager) volumeDir(uid types.UID, plugin, volume string) string {
	return filepath.Join(m.podDir(uid), volumesDir, plugin, volume)
}

const (
	volumesDir  = "volumes"
	subPathsDir = "volume-subpaths"
)

// checkUID refuses a uid that is not one directory name.
func checkUID(uid types.UID) error {
	if s := string(uid); s == "" || s == "." || s == ".." || strings.ContainsAny(s, "/\x00") {
		return fmt.Errorf("pod uid %q is not usable as a directory name", s)
	}
	return nil
}
