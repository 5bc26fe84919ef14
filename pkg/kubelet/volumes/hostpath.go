package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// hostPath is the driver of hostPath volumes: paths of the node. The pod has no
// directory for them, so there is nothing to tear down.
type hostPath struct{ directory }

func (hostPath) Name() string                   { return "kubernetes.io~host-path" }
func (hostPath) Supports(v *corev1.Volume) bool { return v.HostPath != nil }
func (hostPath) SetUp(_ context.Context, v *Volume) (Mount, error) {
	return Mount{HostPath: v.Spec.HostPath.Path}, checkHostPath(v.Spec.HostPath)
}

// checkHostPath checks a path of the node against the type of the volume. For the
// types DirectoryOrCreate and FileOrCreate it creates what is missing.
func checkHostPath(v *corev1.HostPathVolumeSource) error {
	if v.Type == nil || *v.Type == corev1.HostPathUnset {
		return nil
	}
	info, err := os.Stat(v.Path)
	absent := errors.Is(err, fs.ErrNotExist)
	if err != nil && !absent {
		return err
	}
	is := func(ok func(fs.FileMode) bool, what string) error {
		if absent || !ok(info.Mode()) {
			return fmt.Errorf("hostPath type check failed: %s is not %s", v.Path, what)
		}
		return nil
	}
	switch *v.Type {
	case corev1.HostPathDirectoryOrCreate:
		if absent {
			return made(makeHostDir(v.Path), v.Path, corev1.HostPathDirectory)
		}
		return is(fs.FileMode.IsDir, "a directory")
	case corev1.HostPathDirectory:
		return is(fs.FileMode.IsDir, "a directory")
	case corev1.HostPathFileOrCreate:
		if absent {
			return made(makeHostFile(v.Path), v.Path, corev1.HostPathFile)
		}
		return is(fs.FileMode.IsRegular, "a file")
	case corev1.HostPathFile:
		return is(fs.FileMode.IsRegular, "a file")
	case corev1.HostPathSocket:
		return is(ofType(fs.ModeSocket), "a socket file")
	case corev1.HostPathCharDev:
		return is(ofType(fs.ModeDevice|fs.ModeCharDevice), "a character device")
	case corev1.HostPathBlockDev:
		return is(ofType(fs.ModeDevice), "a block device")
	}
	return fmt.Errorf("%s is an invalid volume type", *v.Type)
}

// made ignores ErrExist if another pod has created something of the right type first.
func made(err error, path string, want corev1.HostPathType) error {
	if errors.Is(err, fs.ErrExist) {
		return checkHostPath(&corev1.HostPathVolumeSource{Path: path, Type: &want})
	}
	return err
}

func ofType(want fs.FileMode) func(fs.FileMode) bool {
	return func(mode fs.FileMode) bool { return mode.Type() == want }
}

// makeHostDir and makeHostFile create a missing directory or file. They fail if the
// path has come into existence, and do not follow a link at its end. They set exact
// modes regardless of the umask. makeHostDir creates missing parents; the parent of a
// file must exist.
func makeHostDir(path string) error {
	path = filepath.Clean(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o755), f.Close())
}

func makeHostFile(path string) error {
	f, err := os.OpenFile(filepath.Clean(path), os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o644), f.Close())
}
