package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
)

// checkHostPath holds a path of the node against the type the volume declares,
// and makes what ...OrCreate asks for.
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
			return makeHostDir(v.Path)
		}
		return is(fs.FileMode.IsDir, "a directory")
	case corev1.HostPathDirectory:
		return is(fs.FileMode.IsDir, "a directory")
	case corev1.HostPathFileOrCreate:
		if absent {
			return makeHostFile(v.Path)
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

func ofType(want fs.FileMode) func(fs.FileMode) bool {
	return func(mode fs.FileMode) bool { return mode.Type() == want }
}

// makeHostDir and makeHostFile give exact modes, whatever our umask. Parents of
// a directory are made; those of a file must exist.
func makeHostDir(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	return os.Chmod(path, 0o755)
}

func makeHostFile(path string) error {
	f, err := os.OpenFile(filepath.Clean(path), os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o644), f.Close())
}
