package userns

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Length is the number of ids in a pod's user namespace.
const Length = 65536

// File is the name of the record in a pod's directory.
const File = "userns"

// Range is a range of the node's ids, from which pods get theirs.
type Range struct{ First, Length uint32 }

// DefaultRange returns upstream's range for a node without subordinate ids: it begins
// after the node's own ids.
func DefaultRange(maxPods int) Range {
	const most = 1<<32/Length - 1 // all ids except the node's own
	return Range{First: Length, Length: uint32(min(maxPods, most)) * Length}
}

// record is the content of a pod's record, in upstream's format.
type record struct {
	UIDs []mapping `json:"uidMappings"`
	GIDs []mapping `json:"gidMappings"`
}

type mapping struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

// Allocator allocates ranges. It is safe for concurrent use.
type Allocator struct {
	dir string // the parent of the pods' directories
	all Range

	mu     sync.Mutex
	firsts map[types.UID]uint32 // the first id of each pod's range
}

// New returns an Allocator with the records of the pods below rootDir. It fails if a
// record is invalid, because that pod's ids could be allocated again.
func New(rootDir string, all Range) (*Allocator, error) {
	a := &Allocator{dir: filepath.Join(rootDir, "pods"), all: all, firsts: map[types.UID]uint32{}}
	entries, err := os.ReadDir(a.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read user namespaces of pods: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(a.dir, e.Name(), File)
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read user namespaces of pods: %w", err)
		}
		if a.firsts[types.UID(e.Name())], err = parse(data); err != nil {
			return nil, fmt.Errorf("read user namespace %s: %w", path, err)
		}
	}
	return a, nil
}

// parse returns the first host id of a record.
func parse(data []byte) (uint32, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return 0, err
	}
	if len(r.UIDs) != 1 || len(r.GIDs) != 1 || r.UIDs[0] != r.GIDs[0] {
		return 0, errors.New("want one mapping, the same of users and groups")
	}
	m := r.UIDs[0]
	if m.ContainerID != 0 || m.Length != Length || m.HostID < Length || m.HostID > ^uint32(0)-Length {
		return 0, fmt.Errorf("want %d ids from 0 outside the node's own, not %+v", Length, m)
	}
	return m.HostID, nil
}

// Of returns the pod's user namespace. The first call for a pod allocates and records
// a range; it fails if all ranges are in use.
func (a *Allocator) Of(uid types.UID) (*runtimeapi.UserNamespace, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first, known := a.firsts[uid]
	if !known {
		var err error
		if first, err = a.freeLocked(); err != nil {
			return nil, err
		}
		if err := a.write(uid, first); err != nil {
			return nil, fmt.Errorf("record user namespace: %w", err)
		}
		a.firsts[uid] = first
	}
	ids := []*runtimeapi.IDMapping{{HostId: first, ContainerId: 0, Length: Length}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}, nil
}

func (a *Allocator) freeLocked() (uint32, error) {
	end := uint64(a.all.First) + uint64(a.all.Length)
	for first := uint64(a.all.First); first+Length <= end; first += Length {
		if !a.takenLocked(first) {
			return uint32(first), nil
		}
	}
	return 0, fmt.Errorf("all %d ranges of ids for user namespaces are in use", a.all.Length/Length)
}

// takenLocked reports whether a pod's range overlaps the range at first. A range from
// another configuration may overlap it partly. a.mu is held.
func (a *Allocator) takenLocked(first uint64) bool {
	for _, has := range a.firsts {
		if first < uint64(has)+Length && uint64(has) < first+Length {
			return true
		}
	}
	return false
}

// write writes the record atomically.
func (a *Allocator) write(uid types.UID, first uint32) error {
	if !filepath.IsLocal(string(uid)) || filepath.Base(string(uid)) != string(uid) {
		return fmt.Errorf("pod uid %q is not a file name", uid)
	}
	ids := []mapping{{HostID: first, Length: Length}}
	data, err := json.Marshal(record{UIDs: ids, GIDs: ids})
	if err != nil {
		return err
	}
	dir := filepath.Join(a.dir, string(uid))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	part := filepath.Join(dir, File+".tmp")
	if err := os.WriteFile(part, data, 0o640); err != nil {
		return err
	}
	return os.Rename(part, filepath.Join(dir, File))
}

// Release frees the pod's range and removes the record. It does nothing if the pod
// has none.
func (a *Allocator) Release(uid types.UID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.firsts[uid]; !known {
		return nil
	}
	if err := os.Remove(filepath.Join(a.dir, string(uid), File)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("release user namespace: %w", err)
	}
	delete(a.firsts, uid)
	return nil
}
