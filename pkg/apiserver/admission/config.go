package admission

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// configuration is the file of --admission-control-config-file.
type configuration struct {
	metav1.TypeMeta `json:",inline"`
	Plugins         []pluginConfiguration `json:"plugins"`
}

// pluginConfiguration is the configuration of one plugin, inline or in a file
// of its own.
type pluginConfiguration struct {
	Name          string           `json:"name"`
	Path          string           `json:"path,omitempty"`
	Configuration *runtime.Unknown `json:"configuration,omitempty"`
}

// LoadConfig reads an AdmissionConfiguration and returns the configuration of
// each plugin, undecoded, by the plugin's name. A path in it is relative to the
// file itself.
func LoadConfig(file string) (map[string][]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	plugins, err := parseConfig(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	out := map[string][]byte{}
	for _, p := range plugins {
		if p.Path == "" {
			out[p.Name] = p.Configuration.Raw
			continue
		}
		path := p.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(file), path)
		}
		if out[p.Name], err = os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("configuration of plugin %s: %w", p.Name, err)
		}
	}
	return out, nil
}

// parseConfig parses and validates an AdmissionConfiguration. Its error names
// everything that is invalid.
func parseConfig(data []byte) ([]pluginConfiguration, error) {
	var c configuration
	if err := yaml.UnmarshalStrict(data, &c); err != nil {
		return nil, err
	}
	if c.Kind != "AdmissionConfiguration" || c.APIVersion != "apiserver.config.k8s.io/v1" && c.APIVersion != "apiserver.k8s.io/v1alpha1" {
		return nil, fmt.Errorf("expected kind AdmissionConfiguration of apiserver.config.k8s.io/v1, found kind %q of %q", c.Kind, c.APIVersion)
	}
	var errs []error
	seen := map[string]bool{}
	for i, p := range c.Plugins {
		switch {
		case p.Name == "":
			errs = append(errs, fmt.Errorf("plugins[%d] has no name", i))
		case seen[p.Name]:
			errs = append(errs, fmt.Errorf("plugin %s is there twice", p.Name))
		case (p.Path == "") == (p.Configuration == nil):
			errs = append(errs, fmt.Errorf("plugin %s needs either a path or a configuration", p.Name))
		}
		seen[p.Name] = true
	}
	return c.Plugins, errors.Join(errs...)
}
