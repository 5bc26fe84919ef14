package volumes

import (
	"context"
	"errors"
	"log/slog"
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
	Mounter Mounter             // nil: the kernel's (Linux)
	Node    func() *corev1.Node // allocatable, for downwardAPI limits; nil or nil result: no fallback
	Log     *slog.Logger        // nil: discarded
	Now     func() time.Time    // nil: time.Now
}

// Mount is one volume as a container may mount it.
type Mount struct {
	HostPath string
	ReadOnly bool // the volume can only be mounted read-only

	pod, volume string // whose it is, for SubPath
}

// Mounter is what the manager asks of the kernel.
type Mounter interface {
	// Tmpfs mounts a memory file system on the directory target. size 0: the kernel's default.
	Tmpfs(target string, size int64) error
	// Bind makes the file or directory behind fd visible at target, which exists and is of the same sort.
	Bind(fd int, target string) error
	// Unmount takes one mount off target, even while it is in use.
	Unmount(target string) error
	// Under lists the mount points at and below dir, deepest first.
	Under(dir string) ([]string, error)
}

// Manager owns the volumes directories of all pods of a node. Safe for
// concurrent use; calls for one pod are serialized.
type Manager struct{ cfg Config }

func New(cfg Config) *Manager { return &Manager{cfg} }

var errSoon = errors.New("soon")

// SetUp makes every volume of the pod ready, and returns them by name. Twice is fine.
func (m *Manager) SetUp(ctx context.Context, pod *corev1.Pod) (map[string]Mount, error) {
	return nil, errSoon
}

// Refresh brings the contents of configMap, secret, projected and downwardAPI volumes up to date.
func (m *Manager) Refresh(ctx context.Context, pod *corev1.Pod) error { return errSoon }

// TearDown unmounts and removes what the pod has on disk.
func (m *Manager) TearDown(ctx context.Context, uid types.UID) error { return errSoon }

// Orphans lists the pods that have volumes on disk.
func (m *Manager) Orphans() ([]types.UID, error) { return nil, errSoon }

// SubPath resolves subPath inside a volume; the result is safe to bind-mount.
func (m *Manager) SubPath(mount Mount, subPath string) (hostPath string, err error) {
	return "", errSoon
}
