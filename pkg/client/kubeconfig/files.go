package kubeconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"
)

// Files are the kubeconfig files that a command reads and changes, in order of
// precedence.
type Files struct {
	paths []string
	named bool // by the command's flag: the only file
}

// FilesOf returns the files that kubectl uses: the one that a flag names or, if it is
// empty, DefaultPaths.
func FilesOf(flag string) Files {
	if flag != "" {
		return Files{paths: []string{flag}, named: true}
	}
	return Files{paths: DefaultPaths()}
}

// Named reports whether a flag names the only file.
func (f Files) Named() bool { return f.named }

// Load merges the files. Relative paths in them stay as they are, and missing files
// are skipped.
func (f Files) Load() (*Config, error) {
	merged := &Config{Kind: "Config", APIVersion: "v1"}
	for _, path := range f.paths {
		c, err := read(path)
		if err != nil {
			return nil, err
		}
		merged.Merge(c)
	}
	return merged, nil
}

// read parses a file and keeps relative paths. A missing file is empty.
func read(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Config{}, nil
	}
	if err != nil {
		return nil, err
	}
	c, err := Parse(data, "")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Default returns the file that new entries go to: the first that exists, else the
// last of the list. It returns "" if there is none, because the user has no home.
func (f Files) Default() string {
	for _, p := range f.paths {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	if len(f.paths) == 0 {
		return ""
	}
	return f.paths[len(f.paths)-1]
}

// Dir returns the absolute directory of the file that EditEntry changes.
func (f Files) Dir(list List, name string) (string, error) {
	path, err := f.holding(func(c *Config) bool { return c.Has(list, name) })
	if err != nil {
		return "", err
	}
	return filepath.Abs(filepath.Dir(path))
}

// EditEntry changes the file that holds an entry: the first that has it, else Default.
func (f Files) EditEntry(list List, name string, change func(*Config) error) error {
	return f.edit(func(c *Config) bool { return c.Has(list, name) }, change)
}

// SetCurrentContext writes the current context to Default. An empty name removes it
// from the first file that sets it.
func (f Files) SetCurrentContext(name string) error {
	holds := func(c *Config) bool { return name == "" && c.CurrentContext != "" }
	return f.edit(holds, func(c *Config) error { c.CurrentContext = name; return nil })
}

// edit changes the first file for which holds returns true, else Default.
func (f Files) edit(holds func(*Config) bool, change func(*Config) error) error {
	path, err := f.holding(holds)
	if err != nil {
		return err
	}
	return Edit(path, change)
}

// holding returns the first file for which holds returns true, else Default.
func (f Files) holding(holds func(*Config) bool) (string, error) {
	for _, p := range f.paths {
		c, err := read(p)
		if err != nil {
			return "", err
		}
		if holds(c) {
			return p, nil
		}
	}
	if path := f.Default(); path != "" {
		return path, nil
	}
	return "", errors.New("no kubeconfig: set KUBECONFIG or --kubeconfig")
}

// Edit changes one file under its lock, which kubectl takes, too. It keeps the file's
// permissions, and does not write if nothing changed.
func Edit(path string, change func(*Config) error) error {
	unlock, err := lock(path)
	if err != nil {
		return err
	}
	defer unlock()
	c, err := read(path)
	if err != nil {
		return err
	}
	before, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := change(c); err != nil {
		return err
	}
	if after, err := yaml.Marshal(c); err == nil && bytes.Equal(before, after) {
		return nil
	}
	perm := fs.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		perm = info.Mode().Perm()
	}
	return c.Write(path, perm)
}

// lock creates the lock file of a kubeconfig. It fails if another process has it.
func lock(path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	name := path + ".lock"
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL, 0)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s is being changed by another process; if there is none, remove %s", path, name)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	f.Close()
	return func() { os.Remove(name) }, nil
}

// List is one of the three lists of a kubeconfig.
type List string

// The lists of a kubeconfig.
const (
	Clusters List = "clusters"
	Users    List = "users"
	Contexts List = "contexts"
)

// Has reports whether a list has an entry of that name.
func (c *Config) Has(list List, name string) bool { return slices.Contains(c.Names(list), name) }

// Names returns the names of a list's entries, sorted.
func (c *Config) Names(list List) []string {
	switch list {
	case Clusters:
		return names(c.Clusters)
	case Users:
		return names(c.Users)
	}
	return names(c.Contexts)
}

// Remove removes an entry. It does nothing if there is none of that name.
func (c *Config) Remove(list List, name string) {
	switch list {
	case Clusters:
		c.Clusters = without(c.Clusters, name)
	case Users:
		c.Users = without(c.Users, name)
	case Contexts:
		c.Contexts = without(c.Contexts, name)
	}
}

// SetCluster replaces a cluster, or adds it.
func (c *Config) SetCluster(name string, v Cluster) { put(&c.Clusters, name, v) }

// SetUser replaces a user, or adds it.
func (c *Config) SetUser(name string, v User) { put(&c.Users, name, v) }

// SetContext replaces a context, or adds it.
func (c *Config) SetContext(name string, v Context) { put(&c.Contexts, name, v) }

func names[T Cluster | User | Context](list []Named[T]) []string {
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = n.Name
	}
	slices.Sort(out)
	return out
}

func without[T Cluster | User | Context](list []Named[T], name string) []Named[T] {
	return slices.DeleteFunc(list, func(n Named[T]) bool { return n.Name == name })
}

func put[T Cluster | User | Context](list *[]Named[T], name string, v T) {
	if have := find(*list, name); have != nil {
		*have = v
		return
	}
	*list = append(*list, Named[T]{name, v})
}
