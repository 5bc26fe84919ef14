package logs

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// FS returns a file system of the regular files and directories below root. Links
// cannot lead out of root, and opening a pipe fails instead of blocking.
func FS(root *os.Root) fs.FS { return tree{root} }

type tree struct{ root *os.Root }

func (t tree) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, err := t.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() && !st.IsDir() {
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
