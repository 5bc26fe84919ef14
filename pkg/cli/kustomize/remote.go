package kustomize

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// localOnly is a file system that refuses to read files with remote entries, before
// the library follows them.
type localOnly struct {
	filesys.FileSystem
	refused error // the first; the library does not return it
}

// ReadFile implements filesys.FileSystem.
func (fs *localOnly) ReadFile(path string) ([]byte, error) {
	data, err := fs.FileSystem.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if slices.Contains(konfig.RecognizedKustomizationFileNames(), filepath.Base(path)) {
		err = checkKustomization(path, data)
	} else {
		err = checkPlugins(path, data)
	}
	if err != nil {
		if fs.refused == nil {
			fs.refused = err
		}
		return nil, err
	}
	return data, nil
}

// user matches what git takes for a user at the beginning of a URL without scheme.
var user = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9-]*@`)

// remote reports whether the library would clone or download an entry.
func remote(entry string) bool {
	if u, err := url.Parse(entry); err == nil && (u.Scheme == "http" || u.Scheme == "https") {
		return true
	}
	text := strings.TrimPrefix(strings.ToLower(entry), "git::")
	for _, prefix := range []string{"http:", "https:", "ssh:", "file:", "git:", "github.com/", "github.com:"} {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return user.MatchString(text)
}

func errRemote(entry, where string) error {
	return fmt.Errorf("%s: %q is remote: podium builds kustomizations from local files only; clone it, and name the directory", where, entry)
}

// checkKustomization reports remote entries in a kustomization file. It reads the file
// as the library does, which reports all other errors itself.
func checkKustomization(path string, data []byte) error {
	var k types.Kustomization
	if err := k.Unmarshal(data); err != nil {
		return nil
	}
	for field, entries := range entriesOf(&k) {
		for _, entry := range entries {
			if remote(entry) {
				return errRemote(entry, path+": "+field)
			}
			if strings.ContainsRune(entry, '\n') { // generators and transformers may stand in the file itself
				if err := checkPlugins(path, []byte(entry)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// entriesOf returns the entries of a kustomization that are, or may be, names of
// files and directories.
func entriesOf(k *types.Kustomization) map[string][]string {
	out := map[string][]string{
		"resources": k.Resources, "components": k.Components, "bases": k.Bases, "crds": k.Crds, "configurations": k.Configurations,
		"generators": k.Generators, "transformers": k.Transformers, "validators": k.Validators, "openapi": {k.OpenAPI["path"]},
	}
	for _, p := range k.PatchesStrategicMerge {
		out["patchesStrategicMerge"] = append(out["patchesStrategicMerge"], string(p))
	}
	for _, p := range slices.Concat(k.Patches, k.PatchesJson6902) {
		out["patches"] = append(out["patches"], p.Path)
	}
	for _, r := range k.Replacements {
		out["replacements"] = append(out["replacements"], r.Path)
	}
	for _, g := range k.ConfigMapGenerator {
		out["configMapGenerator"] = append(out["configMapGenerator"], sourcesOf(g.KvPairSources)...)
	}
	for _, g := range k.SecretGenerator {
		out["secretGenerator"] = append(out["secretGenerator"], sourcesOf(g.KvPairSources)...)
	}
	return out
}

// sourcesOf returns the files of a generator, which may be written as KEY=FILE.
func sourcesOf(s types.KvPairSources) []string {
	var out []string
	for _, file := range append(slices.Clone(s.FileSources), append(s.EnvSources, s.EnvSource)...) {
		out = append(out, file)
		if _, path, ok := strings.Cut(file, "="); ok {
			out = append(out, path)
		}
	}
	return out
}

// checkPlugins reports remote entries in the configurations of built-in generators and
// transformers. Other documents name no files.
func checkPlugins(path string, data []byte) error {
	if !bytes.Contains(data, []byte(konfig.BuiltinPluginApiVersion)) {
		return nil
	}
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc map[string]any
		if err := d.Decode(&doc); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return nil // the library reports it
		}
		if fmt.Sprint(doc["apiVersion"]) != konfig.BuiltinPluginApiVersion {
			continue
		}
		if entry := remoteField(doc); entry != "" {
			return errRemote(entry, path)
		}
	}
}

// fileFields are the fields of built-in generators and transformers that name files.
var fileFields = []string{"path", "paths", "files", "envs", "env", "replacements", "crds"}

// remoteField returns the first remote entry in the fields that name files, at any
// depth.
func remoteField(v any) string {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if slices.Contains(fileFields, strings.ToLower(key)) {
				if entry := remoteText(value); entry != "" {
					return entry
				}
			}
			if entry := remoteField(value); entry != "" {
				return entry
			}
		}
	case []any:
		for _, item := range v {
			if entry := remoteField(item); entry != "" {
				return entry
			}
		}
	}
	return ""
}

// remoteText returns the first of a value's texts that is remote.
func remoteText(v any) string {
	switch v := v.(type) {
	case string:
		_, after, _ := strings.Cut(v, "=")
		if remote(v) || remote(after) {
			return v
		}
	case []any:
		for _, item := range v {
			if entry := remoteText(item); entry != "" {
				return entry
			}
		}
	}
	return ""
}
