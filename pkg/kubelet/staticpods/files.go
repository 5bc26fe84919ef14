package staticpods

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/kubelet/podspec"
)

// files reads the manifests of a directory, or the one of a file.
type files struct {
	path string
	node string
	log  *slog.Logger
	last map[string]read // by path: what the last call of pods found
}

// read is what a file had when it was read.
type read struct {
	pod *corev1.Pod // nil: none that is valid
	err string      // why the file could not be used; "": it could
}

// pods returns the pods of all valid manifests. A manifest that is invalid is logged, once,
// and is no pod; but if it was valid before, it stays that for one call: it may be half
// written. The error means that it is not known which files there are.
func (f *files) pods(now time.Time) ([]*corev1.Pod, error) {
	paths, err := f.paths()
	if err != nil {
		return nil, err
	}
	next := map[string]read{}
	var out []*corev1.Pod
	for _, path := range paths {
		before := f.last[path]
		got := read{}
		pod, err := f.read(path, now)
		if err != nil {
			got.err = err.Error()
			if before.err == "" {
				pod = before.pod
			}
			if before.err != got.err {
				f.log.Error("static pod manifest is not usable", "file", path, "error", err)
			}
		}
		if pod != nil {
			out = append(out, pod)
		}
		got.pod = pod
		next[path] = got
	}
	f.last = next
	return out, nil
}

// paths returns the files that may be manifests, sorted. A directory or file that does not
// exist has none.
func (f *files) paths() ([]string, error) {
	info, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.IsDir():
		return []string{f.path}, nil
	}
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if path := filepath.Join(f.path, e.Name()); !strings.HasPrefix(e.Name(), ".") && !isDir(path) {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return out, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path) // a link may lead to a directory
	return err == nil && info.IsDir()
}

// read returns the pod of a file.
func (f *files) read(path string, now time.Time) (*corev1.Pod, error) {
	in, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO must not block
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if info, err := in.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("it is not a regular file"))
	}
	data, err := readAtMost(in)
	if err != nil {
		return nil, err
	}
	return origin{kind: podspec.FileSource, name: path, node: f.node}.decode(data, now)
}

// readAtMost reads a manifest.
func readAtMost(in io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxManifest+1))
	if err == nil && len(data) > maxManifest {
		err = fmt.Errorf("the manifest is larger than %d bytes", maxManifest)
	}
	return data, err
}
