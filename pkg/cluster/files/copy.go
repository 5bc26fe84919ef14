package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// CopyTree is Copy for the regular files below a directory.
func CopyTree(from, to string) error {
	names, err := List(from)
	if err != nil {
		return err
	}
	var pairs []Pair
	for _, name := range names {
		pairs = append(pairs, Pair{filepath.Join(from, name), filepath.Join(to, name)})
	}
	return Copy(pairs)
}

// Pair is a file to copy and its destination.
type Pair struct{ From, To string }

// beside returns the temporary path of the new content, in the directory of the
// destination.
func (c Pair) beside() string { return c.To + ".podium-new" }

// Copy copies files with their permissions and replaces each destination
// atomically; a running program keeps the file that it has opened. It skips
// files that are the same. It writes all files before it syncs the first, so
// that the disk can write them together. After an error some files may be
// replaced; no temporary file remains.
func Copy(pairs []Pair) error {
	var written []Pair
	for _, c := range pairs {
		same, err := Same(c.From, c.To)
		if err == nil && same {
			continue
		}
		written = append(written, c)
		if err == nil {
			err = c.write()
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", c.To, errors.Join(err, remove(written)))
		}
	}
	for i, c := range written {
		if err := c.place(); err != nil {
			return fmt.Errorf("write %s: %w", c.To, errors.Join(err, remove(written[i:])))
		}
	}
	return nil
}

// write copies the file to its temporary path, without a sync.
func (c Pair) write() error {
	in, err := os.Open(c.From)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.To), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(c.beside(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(info.Mode().Perm()), out.Close())
}

// place syncs the temporary file and renames it to the destination.
func (c Pair) place() error {
	f, err := os.Open(c.beside())
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(c.beside(), c.To)
}

// remove deletes the temporary files that were not renamed.
func remove(pairs []Pair) error {
	var errs []error
	for _, c := range pairs {
		if err := os.Remove(c.beside()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Same reports whether two files have the same content and mode. It returns
// false if to does not exist, and an error if from does not.
func Same(from, to string) (bool, error) {
	a, err := os.Open(from)
	if err != nil {
		return false, err
	}
	defer a.Close()
	b, err := os.Open(to)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer b.Close()
	one, errOne := a.Stat()
	other, errOther := b.Stat()
	if err := errors.Join(errOne, errOther); err != nil || one.Size() != other.Size() || one.Mode() != other.Mode() {
		return false, err
	}
	return sameBytes(a, b)
}

func sameBytes(a, b io.Reader) (bool, error) {
	const piece = 1 << 20
	x, y := make([]byte, piece), make([]byte, piece)
	for {
		n, errA := io.ReadFull(a, x)
		m, errB := io.ReadFull(b, y)
		if n != m || !bytes.Equal(x[:n], y[:m]) {
			return false, nil
		}
		if errors.Is(errA, io.EOF) || errors.Is(errA, io.ErrUnexpectedEOF) {
			return true, nil
		}
		if err := errors.Join(errA, errB); err != nil {
			return false, err
		}
	}
}
