package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/dump"
)

// Checksum is upstream's checksum of a state. The name of the type is part of it.
type Checksum uint64

// Rename maps the names of Go types, as fmt prints them, to those of upstream: its
// checksum covers them.
type Rename func(text string) string

// Sum returns upstream's checksum of a state: the hash of its dump. state points to
// a struct whose checksum field is 0.
func Sum(state any, rename Rename) Checksum {
	h := fnv.New32a()
	fmt.Fprint(h, rename(dump.ForHash(state)))
	return Checksum(h.Sum32())
}

// A Record is a state with a checksum.
type Record interface {
	Checksums() (stored, right Checksum)
}

// Parse parses a record and verifies its checksum; 0 means that it has none.
func Parse[R Record](data []byte) (R, error) {
	var r R
	if err := json.Unmarshal(data, &r); err != nil {
		return r, err
	}
	if stored, right := r.Checksums(); stored != 0 && stored != right {
		return r, errors.New("checkpoint is corrupted: the checksum does not match")
	}
	return r, nil
}

// Read reads a record from a file; nil: there is none.
func Read[R Record](path string) (*R, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r, err := Parse[R](data)
	return &r, err
}

// Write writes a state as JSON to a file, as WriteFile does.
func Write(path string, state any) error {
	data, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return WriteFile(path, data)
}

// WriteFile writes a file, whose directory it creates, atomically: after a crash or a
// power failure it has the old or the new content. Only one goroutine may write a file.
func WriteFile(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync() // the rename outlives a power failure
}
