// Package auditpolicy is what a new cluster's apiserver records.
package auditpolicy

import (
	_ "embed"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed policy.yaml
var policy []byte

// Write makes sure that file holds an audit policy. One that exists stays as
// it is: it is the operator's.
func Write(file string) error {
	if _, err := os.Stat(file); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", policy, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
