package env

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/downward"
)

// Sources reads referenced ConfigMaps and Secrets. Errors are *apierrors.StatusError.
type Sources interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Request describes the container whose environment Make builds.
type Request struct {
	Pod       *corev1.Pod
	Container *corev1.Container
	PodIPs    []string          // nil: those of the pod's status; the same holds for HostIPs
	HostIPs   []string          //
	Node      *corev1.Node      // its allocatable is the default of limits; may be nil
	Services  []*corev1.Service // Make uses only those of the pod's namespace and default/kubernetes
}

// ConfigError reports that a container cannot be created because something it
// refers to is missing or invalid. The container's waiting reason is then
// CreateContainerConfigError.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// Make returns the environment of a container, sorted by name. Variables of env
// override those of envFrom, later ones override earlier ones, and both override
// those of Services. Every error is a *ConfigError.
func Make(ctx context.Context, req Request, sources Sources) ([]*runtimeapi.KeyValue, error) {
	m := &maker{
		Request:    req,
		sources:    sources,
		pod:        podWithIPs(req),
		services:   serviceVars(req.Pod, req.Services),
		vars:       map[string]string{},
		configMaps: map[string]*corev1.ConfigMap{},
		secrets:    map[string]*corev1.Secret{},
	}
	for i := range req.Container.EnvFrom {
		if err := m.addAll(ctx, &req.Container.EnvFrom[i]); err != nil {
			return nil, &ConfigError{err}
		}
	}
	for i := range req.Container.Env {
		if err := m.add(ctx, &req.Container.Env[i]); err != nil {
			return nil, &ConfigError{err}
		}
	}
	all := m.services
	maps.Copy(all, m.vars)
	out := make([]*runtimeapi.KeyValue, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, &runtimeapi.KeyValue{Key: name, Value: []byte(all[name])})
	}
	return out, nil
}

func podWithIPs(req Request) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: req.Pod.ObjectMeta, Spec: req.Pod.Spec, Status: req.Pod.Status}
	if len(req.PodIPs) > 0 {
		pod.Status.PodIP, pod.Status.PodIPs = req.PodIPs[0], nil
		for _, ip := range req.PodIPs {
			pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip})
		}
	}
	if len(req.HostIPs) > 0 {
		pod.Status.HostIP, pod.Status.HostIPs = req.HostIPs[0], nil
		for _, ip := range req.HostIPs {
			pod.Status.HostIPs = append(pod.Status.HostIPs, corev1.HostIP{IP: ip})
		}
	}
	return pod
}

// maker is the state of one call of Make.
type maker struct {
	Request
	sources  Sources
	pod      *corev1.Pod       // with the IPs of the request
	services map[string]string // lowest precedence
	vars     map[string]string

	configMaps map[string]*corev1.ConfigMap // read already
	secrets    map[string]*corev1.Secret
}

// addAll adds every key of an envFrom's ConfigMap or Secret. It skips keys that
// are not valid variable names.
func (m *maker) addAll(ctx context.Context, from *corev1.EnvFromSource) error {
	set := func(key, value string) {
		if name := from.Prefix + key; len(validation.IsRelaxedEnvVarName(name)) == 0 {
			m.vars[name] = value
		}
	}
	switch {
	case from.ConfigMapRef != nil:
		cm, err := m.configMap(ctx, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		if err != nil || cm == nil {
			return err
		}
		for k, v := range cm.Data {
			set(k, v)
		}
	case from.SecretRef != nil:
		s, err := m.secret(ctx, from.SecretRef.Name, from.SecretRef.Optional)
		if err != nil || s == nil {
			return err
		}
		for k, v := range s.Data {
			set(k, string(v))
		}
	}
	return nil
}

func (m *maker) add(ctx context.Context, v *corev1.EnvVar) error {
	if v.ValueFrom == nil || v.Value != "" {
		m.vars[v.Name] = expand(v.Value, m.lookup)
		return nil
	}
	value, present, err := m.valueFrom(ctx, v.ValueFrom)
	if err != nil {
		return err
	}
	if present {
		m.vars[v.Name] = value
	}
	return nil
}

// lookup returns the value of a $(VAR) reference: earlier variables, then Services.
func (m *maker) lookup(name string) (string, bool) {
	if v, ok := m.vars[name]; ok {
		return v, true
	}
	v, ok := m.services[name]
	return v, ok
}

// valueFrom evaluates a reference; present is false if it is optional and absent.
func (m *maker) valueFrom(ctx context.Context, from *corev1.EnvVarSource) (value string, present bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = downward.Field(m.pod, from.FieldRef.FieldPath)
		return value, err == nil, err
	case from.ResourceFieldRef != nil:
		value, err = downward.Resource(m.pod, m.Container, from.ResourceFieldRef, m.Node)
		return value, err == nil, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		cm, err := m.configMap(ctx, ref.Name, ref.Optional)
		if err != nil || cm == nil {
			return "", false, err
		}
		if value, ok := cm.Data[ref.Key]; ok {
			return value, true, nil
		}
		return "", false, m.missingKey("ConfigMap", ref.Name, ref.Key, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		s, err := m.secret(ctx, ref.Name, ref.Optional)
		if err != nil || s == nil {
			return "", false, err
		}
		if value, ok := s.Data[ref.Key]; ok {
			return string(value), true, nil
		}
		return "", false, m.missingKey("Secret", ref.Name, ref.Key, ref.Optional)
	}
	return "", false, errors.New("unsupported valueFrom source")
}

func (m *maker) missingKey(kind, name, key string, optional *bool) error {
	if isTrue(optional) {
		return nil
	}
	return fmt.Errorf("couldn't find key %v in %v %v/%v", key, kind, m.Pod.Namespace, name)
}

func (m *maker) configMap(ctx context.Context, name string, optional *bool) (*corev1.ConfigMap, error) {
	return read(ctx, m.configMaps, m.sources.ConfigMap, "configmap", m.Pod.Namespace, name, optional)
}

func (m *maker) secret(ctx context.Context, name string, optional *bool) (*corev1.Secret, error) {
	return read(ctx, m.secrets, m.sources.Secret, "secret", m.Pod.Namespace, name, optional)
}

// read gets an object and remembers it in seen. It returns nil without an error
// if the object is optional and absent. As in upstream's kubelet, the NotFound
// error names the kind in the singular.
func read[T any](ctx context.Context, seen map[string]*T, get func(ctx context.Context, namespace, name string) (*T, error),
	kind, namespace, name string, optional *bool) (*T, error) {
	if obj, ok := seen[name]; ok {
		return obj, nil
	}
	obj, err := get(ctx, namespace, name)
	if apierrors.IsNotFound(err) {
		if isTrue(optional) {
			return nil, nil
		}
		return nil, apierrors.NewNotFound(corev1.Resource(kind), name)
	}
	if err != nil {
		return nil, err
	}
	seen[name] = obj
	return obj, nil
}

func isTrue(b *bool) bool { return b != nil && *b }
