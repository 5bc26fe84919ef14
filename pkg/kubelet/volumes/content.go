package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// content is the driver of volumes whose files the kubelet writes. It converts each
// to the projected volume with the same files.
type content struct {
	directory
	name      string
	inMemory  bool
	projected func(v *corev1.Volume) *corev1.ProjectedVolumeSource // returns nil for volumes of another driver
}

func (c content) Name() string                   { return c.name }
func (c content) Supports(v *corev1.Volume) bool { return c.projected(v) != nil }
func (c content) OnDisk(*corev1.Volume) bool     { return !c.inMemory }

// SetUp writes the volume's files. If the API does not answer and the volume has
// contents from an earlier set-up, it succeeds with these.
func (c content) SetUp(ctx context.Context, v *Volume) (Mount, error) {
	mount := Mount{HostPath: v.Dir, ReadOnly: true}
	if err := os.MkdirAll(v.Dir, 0o755); err != nil {
		return mount, err
	}
	if c.inMemory {
		if err := c.host.mountTmpfs(v.Dir, c.host.memorySize(v.Pod, nil)); err != nil {
			return mount, err
		}
	}
	if err := ownDir(v.Dir, fsGroup(v.Pod), false); err != nil {
		return mount, err
	}
	err := c.Refresh(ctx, v)
	if err != nil && isOutage(err) {
		if _, have := os.Lstat(filepath.Join(v.Dir, dataLink)); have == nil {
			c.host.Log.Warn("read volume contents failed, keeping the old ones", "pod", v.Pod.Namespace+"/"+v.Pod.Name, "volume", v.name, "err", err)
			return mount, nil
		}
	}
	return mount, err
}

// Refresh updates the files if they have changed.
func (c content) Refresh(ctx context.Context, v *Volume) error {
	r := &reader{host: c.host, v: v, files: payload{}}
	source := c.projected(v.Spec)
	var errs []error
	for i := range source.Sources {
		errs = append(errs, r.projection(ctx, &source.Sources[i], or(source.DefaultMode, defaultMode)))
	}
	if err := utilerrors.NewAggregate(errs); err != nil {
		return err
	}
	w := &writer{dir: v.Dir, group: fsGroup(v.Pod), now: c.host.Now}
	return w.write(r.files)
}

// isOutage reports whether err means that the API did not answer, as opposed to an
// error response of the API or an error of the disk or the spec.
func isOutage(err error) bool {
	var several utilerrors.Aggregate
	if errors.As(err, &several) {
		return !slices.ContainsFunc(several.Errors(), func(err error) bool { return !isOutage(err) })
	}
	var disk *fs.PathError
	var config *configError
	return apierrors.ReasonForError(err) == "" && !errors.As(err, &disk) && !errors.As(err, &config)
}

// configError is the error of a volume whose spec refers to something invalid.
type configError struct{ error }

func configErrorf(format string, args ...any) error {
	return &configError{fmt.Errorf(format, args...)}
}

// reader collects a volume's files from its sources.
type reader struct {
	host  *Config
	v     *Volume
	files payload
}

// absent returns err, or nil if it says that an optional object does not exist.
func absent(err error, optional *bool) error {
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	return err
}

// frozen reads an object. It reads an immutable object only once per volume. As
// upstream, the NotFound error names the kind in the singular.
func frozen[T any](ctx context.Context, r *reader, kind, name string,
	get func(ctx context.Context, namespace, name string) (*T, error), immutable func(*T) *bool) (*T, error) {
	key := kind + "/" + name
	if obj, ok := r.v.frozen[key]; ok {
		return obj.(*T), nil
	}
	obj, err := get(ctx, r.v.Pod.Namespace, name)
	if apierrors.IsNotFound(err) {
		return nil, apierrors.NewNotFound(corev1.Resource(kind), name)
	}
	if err != nil {
		return nil, err
	}
	if is := immutable(obj); is != nil && *is {
		r.v.frozen[key] = obj
	}
	return obj, nil
}

// pick adds all keys under their names or, if items is not empty, the items under
// their paths. missing is the format of the error for a key that does not exist.
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

// clean returns the path in the form of a payload's keys. The writer rejects a path
// that leaves the volume.
func clean(p string) string {
	if p == "" {
		return ""
	}
	return path.Clean(p)
}

const defaultMode fs.FileMode = 0o644

func or(m *int32, otherwise fs.FileMode) fs.FileMode {
	if m == nil {
		return otherwise
	}
	return fs.FileMode(*m).Perm()
}
