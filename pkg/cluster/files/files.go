// Package files writes, lists, hashes and copies files so that neither a reader
// nor a crash leaves or sees a partial file.
package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Write sets the content and mode of a file atomically and durably, and creates
// its directory. changed is false if the content was the same. Two concurrent
// calls must not have the same path.
func Write(path string, data []byte, mode fs.FileMode) (changed bool, err error) {
	old, err := os.ReadFile(path)
	if err == nil && bytes.Equal(old, data) {
		return false, os.Chmod(path, mode)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, err
	}
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return false, err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return false, fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(path+".new")))
	}
	return true, nil
}

// WriteNew is Write for a file that does not exist. It does not change an
// existing file, which belongs to the operator.
func WriteNew(path string, data []byte, mode fs.FileMode) error {
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err := Write(path, data, mode)
	return err
}

// List returns the paths of the regular files below a directory, relative to
// it, in lexical order.
func List(dir string) (names []string, err error) {
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, p)
		names = append(names, name)
		return err
	})
	return names, err
}

// Hash returns the SHA-256 hash of a file's content in hexadecimal.
func Hash(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("read %s: %w", file, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
