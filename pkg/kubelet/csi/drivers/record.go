package drivers

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"podium/pkg/kubelet/checkpoint"
)

// disk is a LUN of a target, as the record of a staged volume has it. It holds no secrets.
type disk struct {
	Volume       string   `json:"volume"` // its handle
	Portals      []string `json:"portals"`
	Pending      []string `json:"pending,omitempty"` // those of the portals by which it uses no session
	IQN          string   `json:"iqn"`
	LUN          string   `json:"lun"`
	Interface    string   `json:"interface"`
	Initiator    string   `json:"initiator,omitempty"`   // "": the node's
	Credentials  string   `json:"credentials,omitempty"` // the hash of those of the session
	DiscoverCHAP bool     `json:"discoverCHAP,omitempty"`
	SessionCHAP  bool     `json:"-"`
}

// joined returns the portals by which the volume uses a session.
func (d *disk) joined() []string { return without(d.Portals, d.Pending...) }

// without returns the portals of all that are not among others.
func without(all []string, others ...string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(p string) bool { return slices.Contains(others, p) })
}

// records are the disks that are staged, a file each. They are safe for concurrent use.
type records struct {
	dir string
	log *slog.Logger
	mu  sync.Mutex // held while files are read, written or removed
}

func (r *records) file(volume string) string {
	return filepath.Join(r.dir, fmt.Sprintf("%x.json", sha256.Sum256([]byte(volume))))
}

// write replaces the record of a disk. It is on disk when write returns.
func (r *records) write(d *disk) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return checkpoint.Write(r.file(d.Volume), d)
}

// read returns the record of a volume, nil if it has none.
func (r *records) read(volume string) (*disk, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loadLocked(r.file(volume))
}

// all returns the disks that are staged.
func (r *records) all() ([]*disk, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries, err := os.ReadDir(r.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []*disk
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		d, err := r.loadLocked(filepath.Join(r.dir, e.Name()))
		if err != nil {
			return nil, err
		}
		if d != nil {
			out = append(out, d)
		}
	}
	return out, nil
}

// remove removes the record of a volume.
func (r *records) remove(volume string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := os.Remove(r.file(volume)); err != nil {
		return err
	}
	dir, err := os.Open(r.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close()) // a record that comes back would count as a user of its session
}

// loadLocked reads a record, nil if there is none. It puts aside one that is damaged: the
// other volumes of the node do not depend on it.
func (r *records) loadLocked(file string) (*disk, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	d, err := parseDisk(data)
	if err != nil {
		r.log.Error("record of a staged iSCSI volume is damaged, its session may have to be ended by hand", "file", file+".damaged", "error", err)
		return nil, os.Rename(file, file+".damaged")
	}
	return d, nil
}

func parseDisk(data []byte) (*disk, error) {
	d := &disk{}
	if err := json.Unmarshal(data, d); err != nil {
		return nil, err
	}
	if d.Volume == "" || d.IQN == "" || len(d.Portals) == 0 {
		return nil, errors.New("it names no volume")
	}
	return d, nil
}
