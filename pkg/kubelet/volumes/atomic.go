package volumes

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// file is a file that the kubelet writes to a volume.
type file struct {
	data []byte
	mode fs.FileMode
	uid  *int64 // nil: root
}

// payload is the files of a volume by relative, clean, slash-separated path.
type payload map[string]file

// The reserved names of a volume. The "key" that a container sees is a link to
// "..data/key", and "..data" is a link to the directory with the current set of
// files, so that one rename replaces the set.
//
//	key ─▶ ..data/key        ..data ─▶ ..2026_01_02_15_04_05.123
const (
	dataLink    = "..data"
	newDataLink = "..data_tmp"
	setLayout   = "..2006_01_02_15_04_05."
)

// writer atomically replaces the contents of a volume's directory.
type writer struct {
	dir   string
	group *int64 // the pod's fsGroup
	now   func() time.Time

	// step is called before each change on disk; its error ends the write there,
	// as a crash would. Tests set it.
	step func(name string) error
}

// write makes the volume contain exactly files. A reader sees the old or the new set.
// write also removes what an interrupted write has left.
func (w *writer) write(files payload) error {
	for p := range files {
		if err := checkPath(p); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(w.dir)
	if err != nil {
		return err
	}
	defer root.Close()

	current, err := root.Readlink(dataLink)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if current == "" || !holds(root, current, files) {
		next, err := w.writeSet(root, files)
		if err != nil {
			return err
		}
		if err := w.point(root, next); err != nil {
			return err
		}
		current = next
	}
	if err := w.link(root, files); err != nil {
		return err
	}
	return w.sweep(root, current, files)
}

func (w *writer) at(step string) error {
	if w.step == nil {
		return nil
	}
	return w.step(step)
}

// holds reports whether the set in dir is exactly files.
func holds(root *os.Root, dir string, files payload) bool {
	if path.Base(dir) != dir {
		return false
	}
	found := 0
	err := fs.WalkDir(root.FS(), dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		want, ok := files[strings.TrimPrefix(p, dir+"/")]
		if !ok {
			return fs.ErrExist
		}
		have, err := root.ReadFile(p)
		if err != nil {
			return err
		}
		if !bytes.Equal(have, want.data) {
			return fs.ErrInvalid
		}
		found++
		return nil
	})
	return err == nil && found == len(files)
}

// writeSet writes the files to a new directory, with their final modes and owners.
func (w *writer) writeSet(root *os.Root, files payload) (string, error) {
	dir, err := w.makeSetDir(root)
	if err != nil {
		return "", err
	}
	made := map[string]bool{dir: true}
	for _, p := range slices.Sorted(maps.Keys(files)) {
		full := path.Join(dir, p)
		if err := w.makeParents(root, path.Dir(full), made); err != nil {
			return "", err
		}
		if err := w.at("file " + p); err != nil {
			return "", err
		}
		if err := w.writeFile(root, full, files[p]); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// makeSetDir creates the directory of a new set and returns its name.
func (w *writer) makeSetDir(root *os.Root) (string, error) {
	if err := w.at("set"); err != nil {
		return "", err
	}
	stamp := w.now().UTC().Format(setLayout)
	for i := 0; ; i++ {
		dir := fmt.Sprintf("%s%d", stamp, i)
		err := root.Mkdir(dir, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			err = w.own(root, dir, 0o755, nil, true)
		}
		return dir, err
	}
}

func (w *writer) makeParents(root *os.Root, dir string, made map[string]bool) error {
	if made[dir] {
		return nil
	}
	if err := w.makeParents(root, path.Dir(dir), made); err != nil {
		return err
	}
	made[dir] = true
	if err := root.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return w.own(root, dir, 0o755, nil, true)
}

func (w *writer) writeFile(root *os.Root, name string, f file) error {
	if err := root.WriteFile(name, f.data, 0o600); err != nil {
		return err
	}
	return w.own(root, name, f.mode.Perm(), f.uid, false)
}

// own sets a file's owner and mode. It sets the mode last, because a change of owner
// clears the setuid and setgid bits.
func (w *writer) own(root *os.Root, name string, mode fs.FileMode, uid *int64, dir bool) error {
	owner, group := -1, -1
	if uid != nil {
		owner = int(*uid)
	}
	if w.group != nil {
		group = int(*w.group)
		mode |= groupBits(dir, false)
	}
	if owner >= 0 || group >= 0 {
		if err := root.Lchown(name, owner, group); err != nil {
			return err
		}
	}
	return root.Chmod(name, mode)
}

// point makes ..data point to the set in dir, atomically.
func (w *writer) point(root *os.Root, dir string) error {
	if err := w.at("prepare"); err != nil {
		return err
	}
	if err := root.Remove(newDataLink); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := root.Symlink(dir, newDataLink); err != nil {
		return err
	}
	if err := w.at("switch"); err != nil {
		return err
	}
	return root.Rename(newDataLink, dataLink)
}

// link creates the links that containers see.
func (w *writer) link(root *os.Root, files payload) error {
	for _, name := range slices.Sorted(maps.Keys(visible(files))) {
		want := path.Join(dataLink, name)
		if have, err := root.Readlink(name); err == nil && have == want {
			continue
		}
		if err := w.at("link " + name); err != nil {
			return err
		}
		// A sub-path of an empty volume may have created a directory here.
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := root.Symlink(want, name); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes what does not belong to the current set: links to removed keys,
// older sets, and what interrupted writes have left.
func (w *writer) sweep(root *os.Root, current string, files payload) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	keep := visible(files)
	for _, e := range entries {
		name := e.Name()
		stale := e.Type() == fs.ModeSymlink && !strings.HasPrefix(name, "..") && !keep[name]
		old := name == newDataLink || isSet(name) && name != current
		if !stale && !old {
			continue
		}
		if err := w.at("remove " + name); err != nil {
			return err
		}
		if err := root.RemoveAll(name); err != nil {
			return err
		}
	}
	return nil
}

// isSet reports whether name is that of a set's directory, at any time of the clock.
func isSet(name string) bool {
	return len(name) > 2 && name[:2] == ".." && name[2] >= '0' && name[2] <= '9'
}

// visible returns the first elements of the paths.
func visible(files payload) map[string]bool {
	names := make(map[string]bool, len(files))
	for p := range files {
		first, _, _ := strings.Cut(p, "/")
		names[first] = true
	}
	return names
}

// The maximum length of a path and of a name in it.
const (
	maxPath = 4096
	maxName = 255
)

// checkPath returns an error if the path leaves the volume or uses a reserved name.
func checkPath(p string) error {
	switch {
	case p == "":
		return errors.New("invalid path: must not be empty")
	case path.IsAbs(p):
		return fmt.Errorf("invalid path: must be relative path: %s", p)
	case len(p) > maxPath:
		return fmt.Errorf("invalid path: must be less than or equal to %d characters", maxPath)
	case strings.HasPrefix(p, ".."):
		return fmt.Errorf("invalid path: must not start with '..': %s", p)
	case path.Clean(p) != p || p == "." || strings.Contains(p, "\x00"):
		return fmt.Errorf("invalid path: must be clean: %q", p)
	}
	for _, name := range strings.Split(p, "/") {
		if name == ".." {
			return fmt.Errorf("invalid path: must not contain '..': %s", p)
		}
		if len(name) > maxName {
			return fmt.Errorf("invalid path: filenames must be less than or equal to %d characters", maxName)
		}
	}
	return nil
}
