package kubeconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"
)

// Config is a kubeconfig file, or several merged. The JSON names are the file's.
type Config struct {
	Kind           string           `json:"kind,omitempty"`
	APIVersion     string           `json:"apiVersion,omitempty"`
	Preferences    Preferences      `json:"preferences,omitzero"`
	Clusters       []Named[Cluster] `json:"clusters"`
	Users          []Named[User]    `json:"users"`
	Contexts       []Named[Context] `json:"contexts"`
	CurrentContext string           `json:"current-context"`
	Extensions     []Extension      `json:"extensions,omitempty"`
}

// Preferences are kept for other clients; ours have none.
type Preferences struct {
	Colors     bool        `json:"colors,omitempty"`
	Extensions []Extension `json:"extensions,omitempty"`
}

// Named is an entry of one of the three lists. In the file, the key of the value
// depends on its type.
type Named[T Cluster | User | Context] struct {
	Name  string
	Value T
}

// Cluster is the address of a server and how to verify it.
type Cluster struct {
	Server                   string      `json:"server"`
	TLSServerName            string      `json:"tls-server-name,omitempty"`
	InsecureSkipTLSVerify    bool        `json:"insecure-skip-tls-verify,omitempty"`
	CertificateAuthority     string      `json:"certificate-authority,omitempty"`
	CertificateAuthorityData []byte      `json:"certificate-authority-data,omitempty"`
	ProxyURL                 string      `json:"proxy-url,omitempty"`
	DisableCompression       bool        `json:"disable-compression,omitempty"`
	Extensions               []Extension `json:"extensions,omitempty"`
}

// User holds the credentials of a user.
type User struct {
	ClientCertificate     string              `json:"client-certificate,omitempty"`
	ClientCertificateData []byte              `json:"client-certificate-data,omitempty"`
	ClientKey             string              `json:"client-key,omitempty"`
	ClientKeyData         []byte              `json:"client-key-data,omitempty"`
	Token                 string              `json:"token,omitempty"`
	TokenFile             string              `json:"tokenFile,omitempty"`
	Impersonate           string              `json:"as,omitempty"`
	ImpersonateUID        string              `json:"as-uid,omitempty"`
	ImpersonateGroups     []string            `json:"as-groups,omitempty"`
	ImpersonateExtra      map[string][]string `json:"as-user-extra,omitempty"`
	Username              string              `json:"username,omitempty"`
	Password              string              `json:"password,omitempty"`
	AuthProvider          *AuthProvider       `json:"auth-provider,omitempty"`
	Exec                  *Exec               `json:"exec,omitempty"`
	Extensions            []Extension         `json:"extensions,omitempty"`
}

// AuthProvider names a plugin of a client that obtains credentials. Ours has none.
type AuthProvider struct {
	Name   string            `json:"name"`
	Config map[string]string `json:"config"`
}

// Exec is a command that prints credentials.
type Exec struct {
	Command            string   `json:"command"`
	Args               []string `json:"args"`
	Env                []EnvVar `json:"env"`
	APIVersion         string   `json:"apiVersion,omitempty"`
	InstallHint        string   `json:"installHint,omitempty"`
	ProvideClusterInfo bool     `json:"provideClusterInfo"`
	InteractiveMode    string   `json:"interactiveMode,omitempty"` // Never, IfAvailable or Always
}

// EnvVar is an environment variable of Exec.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Context joins a cluster, a user and a namespace.
type Context struct {
	Cluster    string      `json:"cluster"`
	User       string      `json:"user"`
	Namespace  string      `json:"namespace,omitempty"`
	Extensions []Extension `json:"extensions,omitempty"`
}

// Extension is a named value that a tool stores in the file.
type Extension struct {
	Name      string          `json:"name"`
	Extension json.RawMessage `json:"extension"`
}

func valueKey[T Cluster | User | Context]() string {
	switch any(*new(T)).(type) {
	case Cluster:
		return "cluster"
	case User:
		return "user"
	}
	return "context"
}

// MarshalJSON implements json.Marshaler. The value's key depends on its type.
func (n Named[T]) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"name": n.Name, valueKey[T](): n.Value})
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *Named[T]) UnmarshalJSON(data []byte) error {
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	*n = Named[T]{}
	if raw, ok := parts["name"]; ok {
		if err := json.Unmarshal(raw, &n.Name); err != nil {
			return fmt.Errorf("name: %w", err)
		}
	}
	if raw, ok := parts[valueKey[T]()]; ok {
		if err := json.Unmarshal(raw, &n.Value); err != nil {
			return fmt.Errorf("%s %q: %w", valueKey[T](), n.Name, err)
		}
	}
	return nil
}

// Parse parses a kubeconfig. Relative paths in it are resolved against dir.
func Parse(data []byte, dir string) (*Config, error) {
	c := &Config{}
	if err := yaml.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	if c.Kind != "" && c.Kind != "Config" {
		return nil, fmt.Errorf("kubeconfig: kind %q, want Config", c.Kind)
	}
	if c.APIVersion != "" && c.APIVersion != "v1" {
		return nil, fmt.Errorf("kubeconfig: apiVersion %q, want v1", c.APIVersion)
	}
	below := func(path *string) {
		if *path != "" && dir != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
	for i := range c.Clusters {
		below(&c.Clusters[i].Value.CertificateAuthority)
	}
	for i := range c.Users {
		u := &c.Users[i].Value
		below(&u.ClientCertificate)
		below(&u.ClientKey)
		below(&u.TokenFile)
	}
	return c, nil
}

// DefaultPaths returns the files that kubectl reads: those in $KUBECONFIG, or
// ~/.kube/config.
func DefaultPaths() []string {
	if list := os.Getenv("KUBECONFIG"); list != "" {
		return slices.DeleteFunc(filepath.SplitList(list), func(p string) bool { return p == "" })
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil
	}
	return []string{filepath.Join(home, ".kube", "config")}
}

// Load reads the files and merges them: of two entries with the same name, the first
// one is used. Without paths it reads DefaultPaths. A single path must exist; of
// several paths, and of the defaults, missing files are skipped.
func Load(paths ...string) (*Config, error) {
	must := len(paths) == 1
	if len(paths) == 0 {
		paths = DefaultPaths()
	}
	merged := &Config{Kind: "Config", APIVersion: "v1"}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && !must {
			continue
		}
		if err != nil {
			return nil, err
		}
		dir, err := filepath.Abs(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		c, err := Parse(data, dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		merged.Merge(c)
	}
	return merged, nil
}

// Merge adds the entries of other that c does not have.
func (c *Config) Merge(other *Config) {
	c.Clusters = merge(c.Clusters, other.Clusters)
	c.Users = merge(c.Users, other.Users)
	c.Contexts = merge(c.Contexts, other.Contexts)
	if c.CurrentContext == "" {
		c.CurrentContext = other.CurrentContext
	}
	c.Preferences.Colors = c.Preferences.Colors || other.Preferences.Colors
	c.Preferences.Extensions = mergeExtensions(c.Preferences.Extensions, other.Preferences.Extensions)
	c.Extensions = mergeExtensions(c.Extensions, other.Extensions)
}

func mergeExtensions(have, more []Extension) []Extension {
	for _, e := range more {
		if !slices.ContainsFunc(have, func(h Extension) bool { return h.Name == e.Name }) {
			have = append(have, e)
		}
	}
	return have
}

func merge[T Cluster | User | Context](have, more []Named[T]) []Named[T] {
	for _, n := range more {
		if find(have, n.Name) == nil {
			have = append(have, n)
		}
	}
	return have
}

func find[T Cluster | User | Context](list []Named[T], name string) *T {
	for i := range list {
		if list[i].Name == name {
			return &list[i].Value
		}
	}
	return nil
}

// Cluster returns the cluster of that name, nil if there is none.
func (c *Config) Cluster(name string) *Cluster { return find(c.Clusters, name) }

// User returns the user of that name, nil if there is none.
func (c *Config) User(name string) *User { return find(c.Users, name) }

// Context returns the context of that name, nil if there is none.
func (c *Config) Context(name string) *Context { return find(c.Contexts, name) }

// New returns a config with one cluster, one user and one context, all named name.
func New(name string, cluster Cluster, user User) *Config {
	return &Config{
		Kind: "Config", APIVersion: "v1",
		Clusters:       []Named[Cluster]{{name, cluster}},
		Users:          []Named[User]{{name, user}},
		Contexts:       []Named[Context]{{name, Context{Cluster: name, User: name}}},
		CurrentContext: name,
	}
}

// Write stores the config at path atomically. If path is a symbolic link, the file
// that it refers to is replaced, and the link stays. The file may contain keys: perm
// should be 0600.
func (c *Config) Write(path string, perm os.FileMode) error {
	out := *c
	out.Kind, out.APIVersion = "Config", "v1"
	out.Clusters = append([]Named[Cluster]{}, c.Clusters...)
	out.Users = append([]Named[User]{}, c.Users...)
	out.Contexts = append([]Named[Context]{}, c.Contexts...)
	data, err := yaml.Marshal(out)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if path, err = linked(path); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".kubeconfig-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails after a successful rename
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(perm), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// linked follows symbolic links from path to a file, which may not exist yet.
func linked(path string) (string, error) {
	for range 40 { // as many as Linux follows
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil // a file, or nothing: creating it reports other errors
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return "", fmt.Errorf("%s: too many levels of symbolic links", path)
}
