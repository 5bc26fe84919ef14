package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"podium/pkg/kubelet/downward"
)

// setUpContent makes the directory of a volume whose files we write, in memory
// but for ConfigMaps, and fills it. While the apiserver cannot be asked, a
// volume that was filled before is good as it is.
func (m *Manager) setUpContent(ctx context.Context, state *podState, pod *corev1.Pod, v *corev1.Volume, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if v.ConfigMap == nil {
		if err := m.mountTmpfs(dir, m.memorySize(pod, nil)); err != nil {
			return err
		}
	}
	if err := ownDir(dir, fsGroup(pod), false); err != nil {
		return err
	}
	err := m.writeContent(ctx, state, pod, v, dir)
	if err != nil && isOutage(err) {
		if _, have := os.Lstat(filepath.Join(dir, dataLink)); have == nil {
			m.Log.Warn("volume keeps its contents: its source cannot be read", "pod", pod.Namespace+"/"+pod.Name, "volume", v.Name, "err", err)
			return nil
		}
	}
	return err
}

// isOutage tells an apiserver that does not answer from one that says no.
func isOutage(err error) bool {
	var disk *fs.PathError
	var config *configError
	return apierrors.ReasonForError(err) == "" && !errors.As(err, &disk) && !errors.As(err, &config)
}

// configError is a volume that cannot be filled as its spec wants it.
type configError struct{ error }

func configErrorf(format string, args ...any) error {
	return &configError{fmt.Errorf(format, args...)}
}

func (m *Manager) writeContent(ctx context.Context, state *podState, pod *corev1.Pod, v *corev1.Volume, dir string) error {
	r := &reader{m: m, state: state, pod: pod, files: payload{}}
	if err := r.volume(ctx, v); err != nil {
		return err
	}
	w := &writer{dir: dir, group: fsGroup(pod), now: m.Now}
	return w.write(r.files)
}

// reader collects a volume's files from its sources.
type reader struct {
	m     *Manager
	state *podState
	pod   *corev1.Pod
	files payload
}

func (r *reader) volume(ctx context.Context, v *corev1.Volume) error {
	switch {
	case v.ConfigMap != nil:
		return r.configMap(ctx, v.ConfigMap.Name, v.ConfigMap.Items, mode(v.ConfigMap.DefaultMode), v.ConfigMap.Optional)
	case v.Secret != nil:
		return r.secret(ctx, v.Secret.SecretName, v.Secret.Items, mode(v.Secret.DefaultMode), v.Secret.Optional)
	case v.DownwardAPI != nil:
		return r.downward(v.DownwardAPI.Items, mode(v.DownwardAPI.DefaultMode))
	case v.Projected != nil:
		var errs []error
		for i := range v.Projected.Sources {
			errs = append(errs, r.projection(ctx, &v.Projected.Sources[i], mode(v.Projected.DefaultMode)))
		}
		return utilerrors.NewAggregate(errs)
	}
	return nil
}

func (r *reader) projection(ctx context.Context, p *corev1.VolumeProjection, mode fs.FileMode) error {
	switch {
	case p.ConfigMap != nil:
		return r.configMap(ctx, p.ConfigMap.Name, p.ConfigMap.Items, mode, p.ConfigMap.Optional)
	case p.Secret != nil:
		return r.secret(ctx, p.Secret.Name, p.Secret.Items, mode, p.Secret.Optional)
	case p.DownwardAPI != nil:
		return r.downward(p.DownwardAPI.Items, mode)
	case p.ServiceAccountToken != nil:
		return r.token(ctx, p.ServiceAccountToken, mode)
	}
	return configErrorf("the kubelet does not know this kind of projection")
}

func (r *reader) configMap(ctx context.Context, name string, items []corev1.KeyToPath, mode fs.FileMode, optional *bool) error {
	cm, err := frozen(ctx, r, "configmap", name, r.m.Sources.ConfigMap, func(cm *corev1.ConfigMap) *bool { return cm.Immutable })
	if cm == nil {
		return absent(err, optional)
	}
	data := make(map[string][]byte, len(cm.Data)+len(cm.BinaryData))
	for k, v := range cm.Data {
		data[k] = []byte(v)
	}
	for k, v := range cm.BinaryData {
		data[k] = v
	}
	return r.pick(data, items, mode, optional, "configmap references non-existent config key: %s")
}

func (r *reader) secret(ctx context.Context, name string, items []corev1.KeyToPath, mode fs.FileMode, optional *bool) error {
	s, err := frozen(ctx, r, "secret", name, r.m.Sources.Secret, func(s *corev1.Secret) *bool { return s.Immutable })
	if s == nil {
		return absent(err, optional)
	}
	return r.pick(s.Data, items, mode, optional, "references non-existent secret key: %s")
}

// absent lets an optional object be missing.
func absent(err error, optional *bool) error {
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	return err
}

// frozen reads an object; one that is immutable is read once for the pod. The
// kubelet's words for an absent one name its kind in the singular.
func frozen[T any](ctx context.Context, r *reader, kind, name string,
	get func(ctx context.Context, namespace, name string) (*T, error), immutable func(*T) *bool) (*T, error) {
	key := kind + "/" + name
	if obj, ok := r.state.frozen[key]; ok {
		return obj.(*T), nil
	}
	obj, err := get(ctx, r.pod.Namespace, name)
	if apierrors.IsNotFound(err) {
		return nil, apierrors.NewNotFound(corev1.Resource(kind), name)
	}
	if err != nil {
		return nil, err
	}
	if is := immutable(obj); is != nil && *is {
		r.state.frozen[key] = obj
	}
	return obj, nil
}

// pick adds all keys under their names, or those that items want under their paths.
func (r *reader) pick(data map[string][]byte, items []corev1.KeyToPath, mode fs.FileMode, optional *bool, missing string) error {
	if len(items) == 0 {
		for k, v := range data {
			r.files[k] = file{data: v, mode: mode}
		}
		return nil
	}
	for _, item := range items {
		v, ok := data[item.Key]
		if !ok {
			if optional != nil && *optional {
				continue
			}
			return configErrorf(missing, item.Key)
		}
		r.files[clean(item.Path)] = file{data: v, mode: or(item.Mode, mode)}
	}
	return nil
}

func (r *reader) downward(items []corev1.DownwardAPIVolumeFile, mode fs.FileMode) error {
	var errs []error
	for _, item := range items {
		var text string
		var err error
		switch {
		case item.FieldRef != nil:
			text, err = downward.Field(r.pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			text, err = downward.Resource(r.pod, nil, item.ResourceFieldRef, r.m.Node())
		}
		if err != nil {
			errs = append(errs, &configError{err})
			continue
		}
		r.files[clean(item.Path)] = file{data: []byte(text), mode: or(item.Mode, mode)}
	}
	return utilerrors.NewAggregate(errs)
}

// clean is the path as the payload has it; what leaves the volume still does.
func clean(p string) string {
	if p == "" {
		return ""
	}
	return path.Clean(p)
}

const defaultMode fs.FileMode = 0o644

func mode(m *int32) fs.FileMode { return or(m, defaultMode) }

func or(m *int32, otherwise fs.FileMode) fs.FileMode {
	if m == nil {
		return otherwise
	}
	return fs.FileMode(*m).Perm()
}
