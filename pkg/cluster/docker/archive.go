package docker

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// untar returns the content of the first file of a tar archive.
func untar(r io.Reader) ([]byte, error) {
	t := tar.NewReader(r)
	if _, err := t.Next(); err != nil {
		return nil, fmt.Errorf("read the archive: %w", err)
	}
	return io.ReadAll(t)
}

// unpack writes the regular files of a tar archive below dir, and skips other
// entries. It returns an error for a path outside dir.
func unpack(r io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := root.MkdirAll(filepath.Dir(h.Name), 0o755); err != nil {
			return err
		}
		if err := writeEntry(root, h.Name, t); err != nil {
			return err
		}
	}
}

func writeEntry(root *os.Root, name string, r io.Reader) error {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
