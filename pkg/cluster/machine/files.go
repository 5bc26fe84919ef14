package machine

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// writeFile makes a file's content what it should be, in one step, and says
// whether it was anything else before.
func writeFile(path string, data []byte, mode fs.FileMode) (changed bool, err error) {
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

// settings are the content of a daemon's file: flags in camelCase.
type settings map[string]any

func writeYAML(path string, content settings) (changed bool, err error) {
	data, err := yaml.Marshal(content)
	if err != nil {
		return false, fmt.Errorf("encode %s: %w", path, err)
	}
	return writeFile(path, data, 0o600)
}
