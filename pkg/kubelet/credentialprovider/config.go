package credentialprovider

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"podium/pkg/kubelet/images"
)

// The versions of the config file and of the protocol of the programs.
const (
	configVersion   = "kubelet.config.k8s.io/v1"
	configKind      = "CredentialProviderConfig"
	protocolVersion = "credentialprovider.kubelet.k8s.io/v1"
)

// config is the file of --image-credential-provider-config.
type config struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Providers  []provider `json:"providers"`
}

// provider describes a program and the images for which it is run.
type provider struct {
	Name                 string           `json:"name"` // of the file in the directory of programs
	MatchImages          []string         `json:"matchImages"`
	DefaultCacheDuration *metav1.Duration `json:"defaultCacheDuration"`
	APIVersion           string           `json:"apiVersion"`
	Args                 []string         `json:"args,omitempty"`
	Env                  []variable       `json:"env,omitempty"`
	TokenAttributes      map[string]any   `json:"tokenAttributes,omitempty"` // refused
}

type variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// load reads and checks the config file and looks for the programs.
func load(file, dir string) ([]provider, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var errs []error
	for i := range c.Providers {
		path := filepath.Join(dir, c.Providers[i].Name)
		if info, err := os.Stat(path); err != nil {
			errs = append(errs, err)
		} else if info.IsDir() || info.Mode()&0o111 == 0 {
			errs = append(errs, fmt.Errorf("%s is not executable", path))
		}
	}
	return c.Providers, errors.Join(errs...)
}

// parse parses a config file. It returns all its errors, joined.
func parse(data []byte) (*config, error) {
	c := &config{}
	if err := yaml.UnmarshalStrict(data, c); err != nil {
		return nil, err
	}
	if c.APIVersion != configVersion || c.Kind != configKind {
		return nil, fmt.Errorf("want apiVersion: %s, kind: %s", configVersion, configKind)
	}
	var errs []error
	if len(c.Providers) == 0 {
		errs = append(errs, errors.New("providers: at least 1 is required"))
	}
	names := map[string]bool{}
	for i := range c.Providers {
		p := &c.Providers[i]
		if err := p.validate(); err != nil {
			errs = append(errs, fmt.Errorf("providers[%d]: %w", i, err))
		}
		if names[p.Name] {
			errs = append(errs, fmt.Errorf("providers[%d]: name %q appears twice", i, p.Name))
		}
		names[p.Name] = true
	}
	return c, errors.Join(errs...)
}

func (p *provider) validate() error {
	var errs []error
	switch {
	case p.Name == "":
		errs = append(errs, errors.New("name is required"))
	case p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/\\ "):
		errs = append(errs, fmt.Errorf("name %q is not the name of a file", p.Name))
	}
	if p.APIVersion != protocolVersion {
		errs = append(errs, fmt.Errorf("apiVersion %q: want %s", p.APIVersion, protocolVersion))
	}
	if len(p.MatchImages) == 0 {
		errs = append(errs, errors.New("matchImages: at least 1 is required"))
	}
	for _, pattern := range p.MatchImages {
		if err := images.CheckPattern(pattern); err != nil {
			errs = append(errs, fmt.Errorf("matchImages: %w", err))
		}
	}
	switch d := p.DefaultCacheDuration; {
	case d == nil:
		errs = append(errs, errors.New("defaultCacheDuration is required"))
	case d.Duration < 0:
		errs = append(errs, fmt.Errorf("defaultCacheDuration %v is negative", d.Duration))
	}
	for _, v := range p.Env {
		if v.Name == "" || strings.ContainsAny(v.Name, "=\x00") {
			errs = append(errs, fmt.Errorf("env: %q is not the name of a variable", v.Name))
		}
	}
	if len(p.TokenAttributes) > 0 {
		errs = append(errs, errors.New("tokenAttributes is not supported"))
	}
	return errors.Join(errs...)
}

// matches reports whether the program is asked for credentials for an image.
func (p *provider) matches(image string) bool {
	for _, pattern := range p.MatchImages {
		if images.Matches(pattern, image) {
			return true
		}
	}
	return false
}
