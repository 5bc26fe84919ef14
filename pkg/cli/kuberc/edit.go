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
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"podium/pkg/cluster/files"
)

// Open reads a file that is about to be changed. A missing file has no preferences. A
// file with documents or fields that Write would drop is an error.
func Open(path string) (*Preference, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Preference{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}}, nil
	}
	if err != nil {
		return nil, err
	}
	p, warning, err := Parse(data)
	if err == nil && warning != "" {
		err = errors.New(warning)
	}
	if err == nil && documents(data) > 1 {
		err = errors.New("the file has several documents: edit it by hand")
	}
	if err != nil {
		return nil, fmt.Errorf("kuberc: %s: %w", path, err)
	}
	return p, nil
}

func documents(data []byte) (n int) {
	for docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; n++ {
		if _, err := docs.Read(); errors.Is(err, io.EOF) {
			return n
		}
	}
}

// Write replaces the file. It writes nothing that Parse would refuse.
func (p *Preference) Write(path string) error {
	if err := p.validate(); err != nil {
		return err
	}
	data, err := yaml.Marshal(p)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	_, err = files.Write(path, data, 0o600)
	return err
}

// SetDefaults sets the default values of a command. Those that it has are replaced with
// overwrite, otherwise an error.
func (p *Preference) SetDefaults(d Defaults, overwrite bool) error {
	i := slices.IndexFunc(p.Defaults, func(have Defaults) bool { return have.Command == d.Command })
	switch {
	case i < 0:
		p.Defaults = append(p.Defaults, d)
	case !overwrite:
		return fmt.Errorf("defaults for command %q already exist, use --overwrite to replace", d.Command)
	default:
		p.Defaults[i] = d
	}
	return nil
}

// SetAlias sets an alias, as SetDefaults does.
func (p *Preference) SetAlias(a Alias, overwrite bool) error {
	i := slices.IndexFunc(p.Aliases, func(have Alias) bool { return have.Name == a.Name })
	switch {
	case i < 0:
		p.Aliases = append(p.Aliases, a)
	case !overwrite:
		return fmt.Errorf("alias %q already exists, use --overwrite to replace", a.Name)
	default:
		p.Aliases[i] = a
	}
	return nil
}

// SetPlugins sets which credential plugins may run, as SetDefaults does.
func (p *Preference) SetPlugins(policy string, allowed []PluginEntry, overwrite bool) error {
	if p.CredentialPluginPolicy != "" && !overwrite {
		return errors.New("the credential plugin policy is already set, use --overwrite to replace")
	}
	p.CredentialPluginPolicy, p.CredentialPluginAllowlist = policy, allowed
	return nil
}
