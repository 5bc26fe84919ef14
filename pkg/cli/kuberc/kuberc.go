package kuberc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

const (
	apiVersion = "kubectl.config.k8s.io/v1beta1"
	kind       = "Preference"
)

// Preference is the content of the file.
type Preference struct {
	metav1.TypeMeta `json:",inline"`

	Defaults []Defaults `json:"defaults,omitempty"`
	Aliases  []Alias    `json:"aliases,omitempty"`

	// Which credential plugins may run. Podium runs none, and only checks the fields.
	CredentialPluginPolicy    string        `json:"credentialPluginPolicy,omitempty"`
	CredentialPluginAllowlist []PluginEntry `json:"credentialPluginAllowlist,omitempty"`
}

// Defaults are default values of a command's flags.
type Defaults struct {
	Command string   `json:"command"` // "get", "create role"
	Options []Option `json:"options"`
}

// Alias is another name of a command, with arguments before and after those of the
// user, and default values of its flags.
type Alias struct {
	Name        string   `json:"name"`
	Command     string   `json:"command"`
	PrependArgs []string `json:"prependArgs,omitempty"`
	AppendArgs  []string `json:"appendArgs,omitempty"`
	Options     []Option `json:"options,omitempty"`
}

// Option is a flag's long name, without dashes, and its default value.
type Option struct {
	Name    string `json:"name"`
	Default string `json:"default"`
}

// PluginEntry allows one credential plugin.
type PluginEntry struct {
	Name    string `json:"name,omitempty"`
	Command string `json:"command,omitempty"`
}

// ErrOff means that the user has switched preferences off.
var ErrOff = errors.New("kuberc is disabled by KUBERC=off or KUBECTL_KUBERC=false")

// Path returns the file that the flag names, else $KUBERC, else ~/.kube/kuberc. named is
// false for the last, which may be missing; path is "" if there is no home directory.
func Path(flag string) (path string, named bool, err error) {
	env := os.Getenv("KUBERC")
	switch {
	case env == "off" || os.Getenv("KUBECTL_KUBERC") == "false":
		return "", false, ErrOff
	case flag != "":
		return flag, true, nil
	case env != "":
		return env, true, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", false, nil
	}
	return filepath.Join(home, ".kube", "kuberc"), false, nil
}

// Load returns the preferences of the file at Path; nil if there are none. Errors of a
// file that is not named are returned as a warning, as are unknown fields.
func Load(flag string) (p *Preference, warning string, err error) {
	path, named, err := Path(flag)
	switch {
	case errors.Is(err, ErrOff) && flag != "":
		return nil, "", errors.New("disabling kuberc via KUBERC=off and passing kuberc flag are mutually exclusive")
	case errors.Is(err, ErrOff) || path == "":
		return nil, "", nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil, "", nil
	}
	if err == nil {
		p, warning, err = Parse(data)
	}
	switch {
	case err == nil && warning != "":
		return p, fmt.Sprintf("kuberc: %s: %s", path, warning), nil
	case err != nil && !named:
		return nil, fmt.Sprintf("kuberc: no preferences loaded from %s: %v", path, err), nil
	case err != nil:
		return nil, "", fmt.Errorf("kuberc: %s: %w", path, err)
	}
	return p, "", nil
}

// Parse returns the first document of the version that it knows, checked. Fields that
// it does not know are a warning.
func Parse(data []byte) (*Preference, string, error) {
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	seen := []string{"nothing"}
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return nil, "", fmt.Errorf("no document is apiVersion: %s, kind: %s; found %s", apiVersion, kind, seen[len(seen)-1])
		}
		if err != nil {
			return nil, "", err
		}
		var t metav1.TypeMeta
		if err := yaml.Unmarshal(doc, &t); err != nil {
			return nil, "", err
		}
		if t.APIVersion != apiVersion || t.Kind != kind {
			seen = append(seen, fmt.Sprintf("%q %q", t.APIVersion, t.Kind))
			continue
		}
		p := &Preference{}
		var warning string
		if err := yaml.UnmarshalStrict(doc, p); err != nil {
			warning = err.Error()
			p = &Preference{}
			if err := yaml.Unmarshal(doc, p); err != nil {
				return nil, "", err
			}
		}
		return p, warning, p.validate()
	}
}

var aliasName = regexp.MustCompile(`^[a-zA-Z]+$`)

func (p *Preference) validate() error {
	seen := map[string]bool{}
	for _, a := range p.Aliases {
		if !aliasName.MatchString(a.Name) {
			return fmt.Errorf("invalid alias name %q, can only include alphabetical characters", a.Name)
		}
		if seen[a.Name] {
			return fmt.Errorf("duplicate alias name %s", a.Name)
		}
		seen[a.Name] = true
		if strings.TrimSpace(a.Command) == "" {
			return fmt.Errorf("alias %s has no command", a.Name)
		}
		if err := check(a.Options); err != nil {
			return err
		}
	}
	for _, d := range p.Defaults {
		if err := check(d.Options); err != nil {
			return err
		}
	}
	if !slices.Contains([]string{"", "AllowAll", "DenyAll", "Allowlist"}, p.CredentialPluginPolicy) {
		return fmt.Errorf("invalid credentialPluginPolicy %q: want AllowAll, DenyAll or Allowlist", p.CredentialPluginPolicy)
	}
	if (p.CredentialPluginPolicy == "Allowlist") != (len(p.CredentialPluginAllowlist) > 0) {
		return errors.New("credentialPluginAllowlist must be given if, and only if, credentialPluginPolicy is Allowlist")
	}
	return nil
}

func check(options []Option) error {
	for _, o := range options {
		if strings.HasPrefix(o.Name, "-") {
			return fmt.Errorf("flag name %s should be in long form without dashes", o.Name)
		}
	}
	return nil
}
