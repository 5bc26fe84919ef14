package logs

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// FS shows the files and directories below root, and nothing else: no link leads
// out of it, and no pipe is waited for.
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
