package machine

import (
	"fmt"

	"sigs.k8s.io/yaml"

	"podium/pkg/cluster/files"
)

// settings is the content of a daemon's configuration file, with the flags in
// camelCase.
type settings map[string]any

// writeYAML writes the settings to path with mode 0600, and reports whether the
// content changed.
func writeYAML(path string, content settings) (changed bool, err error) {
	data, err := yaml.Marshal(content)
	if err != nil {
		return false, fmt.Errorf("encode %s: %w", path, err)
	}
	return files.Write(path, data, 0o600)
}
