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

// Length is the number of ids in a pod's namespace.
const Length = 65536

// File is the name of the record in a pod's directory.
const File = "userns"

// Range is a block of the node's ids. Ranges of pods are cut from it.
type Range struct{ First, Length uint32 }

// DefaultRange is upstream's for a node without subordinate ids of its own: it
// begins after the ids of the node itself.
func DefaultRange(maxPods int) Range {
	const most = 1<<32/Length - 1 // all ids but the node's own
	return Range{First: Length, Length: uint32(min(maxPods, most)) * Length}
}

// record is what the file of a pod holds; upstream's form.
type record struct {
	UIDs []mapping `json:"uidMappings"`
	GIDs []mapping `json:"gidMappings"`
}

type mapping struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

// Allocator gives out ranges. It is safe for concurrent use.
type Allocator struct {
	dir string // of the pods' directories
	all Range

	mu     sync.Mutex
	firsts map[types.UID]uint32 // the first id of each pod's range
}

// New reads the records of the pods below rootDir. It fails on one that it does
// not understand: that pod's ids could be given to another.
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

// Of returns the pod's namespace. It chooses and records a range on the first
// call for a pod.
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

// takenLocked reports whether a pod has an id of the range, which a record of
// another configuration may share only in part.
func (a *Allocator) takenLocked(first uint64) bool {
	for _, has := range a.firsts {
		if first < uint64(has)+Length && uint64(has) < first+Length {
			return true
		}
	}
	return false
}

// write makes the record appear whole or not at all.
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

// Release gives the pod's range back and removes the record. Twice is fine.
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
