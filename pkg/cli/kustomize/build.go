package kustomize

import (
	"fmt"
	"path/filepath"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Options change how a kustomization is built.
type Options struct {
	// AnyFile allows files outside the directory of the kustomization.
	AnyFile bool
	// Legacy sorts the objects in kustomize's historic order, in which objects precede
	// those that need them.
	Legacy bool
	// Helm renders Helm charts; nil: they are refused.
	Helm *Helm
}

// Helm is how charts are rendered: by Helm's own program, which may also fetch them.
type Helm struct {
	Command     string   // file or name on PATH
	KubeVersion string   // that charts see; "": Helm's own
	APIVersions []string // that charts see, beside Helm's own: GROUP/VERSION[/KIND]
	Debug       bool     // Helm prints debug messages
}

// Build returns the objects of the kustomization in a directory, as YAML documents.
func Build(dir string, o Options) ([]byte, error) {
	if remote(dir) {
		return nil, errRemote(dir, "the argument")
	}
	return build(filesys.MakeFsOnDisk(), dir, o)
}

func build(fs filesys.FileSystem, dir string, o Options) ([]byte, error) {
	opts := krusty.MakeDefaultOptions() // without plugins
	if h := o.Helm; h != nil {
		opts.PluginConfig.HelmConfig = types.HelmConfig{Enabled: true, Command: h.Command, KubeVersion: h.KubeVersion, ApiVersions: h.APIVersions, Debug: h.Debug}
	}
	opts.Reorder = krusty.ReorderOptionUnspecified
	if o.Legacy {
		opts.Reorder = krusty.ReorderOptionLegacy
	}
	if o.AnyFile {
		opts.LoadRestrictions = types.LoadRestrictionsNone
	}
	local := &localOnly{FileSystem: fs}
	objects, err := krusty.MakeKustomizer(opts).Run(local, filepath.Clean(dir))
	if local.refused != nil {
		return nil, local.refused
	}
	if err != nil {
		return nil, fmt.Errorf("kustomize %s: %w", dir, err)
	}
	return objects.AsYaml()
}
