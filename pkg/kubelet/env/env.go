package env

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Sources is where referenced ConfigMaps and Secrets are read. Errors are *apierrors.StatusError.
type Sources interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Request says whose environment to make.
type Request struct {
	Pod       *corev1.Pod
	Container *corev1.Container
	PodIPs    []string
	HostIPs   []string
	Node      *corev1.Node      // allocatable, where a container has no limits; may be nil
	Services  []*corev1.Service // all namespaces'; only those of the pod's and default/kubernetes are used
}

// ConfigError says that the container cannot be made because something it
// refers to is missing or wrong: its waiting reason is CreateContainerConfigError.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// Make is the container's environment, sorted by name.
func Make(ctx context.Context, req Request, sources Sources) ([]*runtimeapi.KeyValue, error) {
	return nil, errors.New("soon")
}

// Expand replaces $(VAR) references in commands and arguments; unknown ones stay as they are.
func Expand(texts []string, vars []*runtimeapi.KeyValue) []string { return texts }

// ExpandSubPath is Expand for a subPathExpr: an unknown variable is an error.
func ExpandSubPath(expr string, vars []*runtimeapi.KeyValue) (string, error) { return expr, nil }
