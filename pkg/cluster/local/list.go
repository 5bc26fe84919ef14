package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Found is a cluster on this machine. Running is the number of its processes
// that run, of Processes in total.
type Found struct {
	Name, Dir, Kubeconfig string
	Running, Processes    int
}

// marker is the file that marks a directory as a cluster's: without it, Create
// uses only an empty or new directory, and Delete deletes nothing.
const marker = "cluster.json"

// marked is the content of the marker.
type marked struct {
	Name string `json:"name"`
	Dir  string `json:"dir"`
}

// claim marks the directory as ours. It returns an error if the directory has
// files but no marker.
func (c *Config) claim() error {
	_, err := readMarker(c.Dir)
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if entries, err := os.ReadDir(c.Dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s holds files that are not a cluster's; name an empty or absent folder with --dir", c.Dir)
	}
	if err := os.MkdirAll(c.runDir(), 0o711); err != nil {
		return err
	}
	// List finds the directory by the copy in /run.
	return errors.Join(
		writeJSON(c.path(marker), marked{c.Name, c.Dir}),
		writeJSON(filepath.Join(c.runDir(), marker), marked{c.Name, c.Dir}),
	)
}

func readMarker(dir string) (marked, error) {
	var m marked
	data, err := os.ReadFile(filepath.Join(dir, marker))
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("read %s: %w", filepath.Join(dir, marker), err)
	}
	return m, nil
}

// List returns the clusters that have a marker under /run, and the one in dir:
// a reboot empties /run. They are sorted by name.
func List(dir string) ([]Found, error) {
	marks, err := filepath.Glob("/run/podium-*/" + marker)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	dirs := map[string]bool{dir: true}
	for _, file := range marks {
		m, err := readMarker(filepath.Dir(file))
		if err != nil {
			return nil, err
		}
		dirs[m.Dir] = true
	}
	var all []Found
	for d := range dirs {
		m, err := readMarker(d)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found, err := look(m.Name, d)
		if err != nil {
			return nil, err
		}
		all = append(all, found)
	}
	slices.SortFunc(all, func(a, b Found) int { return strings.Compare(a.Name+a.Dir, b.Name+b.Dir) })
	return all, nil
}

// look counts the running processes of the cluster in dir.
func look(name, dir string) (Found, error) {
	c := Config{Name: name, Dir: dir}
	found := Found{Name: name, Dir: dir, Kubeconfig: c.Kubeconfig()}
	names := []string{"containerd"}
	for _, p := range c.daemons() {
		names = append(names, p.name)
	}
	for _, n := range names {
		r, err := c.running(n)
		if err != nil {
			return Found{}, err
		}
		found.Processes++
		if r != nil {
			found.Running++
		}
	}
	return found, nil
}
