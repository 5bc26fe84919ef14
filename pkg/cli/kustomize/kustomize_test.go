package kustomize

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\ndata:\n  link: https://example.org/x\n"

// memory returns a file system with these files.
func memory(t testing.TB, files map[string]string) filesys.FileSystem {
	fs := filesys.MakeFsInMemory()
	for name, text := range files {
		if err := fs.WriteFile(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	return fs
}

func TestBuild(t *testing.T) {
	fs := memory(t, map[string]string{
		"/app/base/kustomization.yaml": "resources: [c.yaml]\n",
		"/app/base/c.yaml":             configMap,
		"/app/over/kustomization.yaml": "resources: [../base]\nnamePrefix: x-\nconfigMapGenerator:\n- name: g\n  literals: [url=https://example.org]\n  options: {disableNameSuffixHash: true}\n",
	})
	got, err := build(fs, "/app/over", Options{})
	want := "apiVersion: v1\ndata:\n  link: https://example.org/x\nkind: ConfigMap\nmetadata:\n  name: x-c\n---\napiVersion: v1\ndata:\n  url: https://example.org\nkind: ConfigMap\nmetadata:\n  name: x-g\n"
	if err != nil || string(got) != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, got, want)
	}
}

// Every field through which the library would run git, download, or run a program is
// refused, wherever it stands.
func TestRemoteEntriesAreRefused(t *testing.T) {
	for name, row := range map[string]struct {
		files map[string]string
		want  string
	}{
		"Resource":        {map[string]string{"kustomization.yaml": "resources: ['https://example.org/x.yaml']"}, "is remote"},
		"Base":            {map[string]string{"kustomization.yml": "bases: ['github.com/o/r//d?ref=v1']"}, "is remote"},
		"SCP":             {map[string]string{"Kustomization": "components: ['git@example.org:o/r.git']"}, "is remote"},
		"FileURL":         {map[string]string{"kustomization.yaml": "resources: ['file:///tmp/repo']"}, "is remote"},
		"ForcedGit":       {map[string]string{"kustomization.yaml": "resources: ['GIT::ssh://example.org/o/r']"}, "is remote"},
		"FieldInCapitals": {map[string]string{"kustomization.yaml": "Resources: ['https://example.org/x.yaml']"}, "is remote"},
		"Patch":           {map[string]string{"kustomization.yaml": "patches: [{path: 'http://example.org/p'}]"}, "is remote"},
		"Replacement":     {map[string]string{"kustomization.yaml": "replacements: [{path: 'http://example.org/p'}]"}, "is remote"},
		"OpenAPI":         {map[string]string{"kustomization.yaml": "openapi: {path: 'http://example.org/p'}"}, "is remote"},
		"GeneratorFile":   {map[string]string{"kustomization.yaml": "configMapGenerator: [{name: g, files: ['k=https://example.org/f']}]"}, "is remote"},
		"SecretEnv":       {map[string]string{"kustomization.yaml": "secretGenerator: [{name: g, envs: ['https://example.org/f']}]"}, "is remote"},
		"Below": {map[string]string{"kustomization.yaml": "resources: [sub]", "sub/kustomization.yaml": "resources: ['https://example.org/x.yaml']"},
			"is remote"},
		"Transformer": {map[string]string{"kustomization.yaml": "transformers: [t.yaml]", "t.yaml": "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: t}\npath: https://example.org/p\n"},
			"is remote"},
		"InlineGenerator": {map[string]string{"kustomization.yaml": "generators:\n- |-\n  apiVersion: builtin\n  kind: ConfigMapGenerator\n  metadata: {name: t}\n  files: ['k=https://example.org/p']\n"},
			"is remote"},
		"HelmChart": {map[string]string{"kustomization.yaml": "helmCharts: [{name: x, repo: 'https://example.org'}]"}, "must specify --enable-helm"},
		"Function": {map[string]string{"kustomization.yaml": "transformers: [t.yaml]", "t.yaml": "apiVersion: x/v1\nkind: F\nmetadata:\n  name: t\n  annotations:\n    config.kubernetes.io/function: |\n      exec: {path: ./run}\n"},
			"plugin"},
		"OutsideTheDirectory": {map[string]string{"kustomization.yaml": "resources: [../secret.yaml]", "../secret.yaml": configMap}, "security"},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{}
			for file, text := range row.files {
				files["/app/dir/"+file] = text
			}
			got, err := build(memory(t, files), "/app/dir", Options{})
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v\n%s\nwant an error that says %q", err, got, row.want)
			}
		})
	}
	for _, dir := range []string{"https://github.com/o/r", "git@github.com:o/r"} {
		if _, err := Build(dir, Options{}); err == nil || !strings.Contains(err.Error(), "is remote") {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// Charts are rendered by the command that the caller names, with the flags that it gives.
func TestHelmCommand(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"kustomization.yaml":     "helmCharts: [{name: web, releaseName: app, namespace: prod, valuesInline: {a: b}}]\nnamePrefix: x-\n",
		"charts/web/Chart.yaml":  "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		"charts/web/values.yaml": "a: c\n",
		"helm": `#!/bin/sh
case $1 in
version) echo v4.0.0 ;;
template) printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {args: "%s"}\n' "$*" ;;
esac
`,
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Build(dir, Options{Helm: &Helm{Command: filepath.Join(dir, "helm"), KubeVersion: "1.37", APIVersions: []string{"example.com/v1"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"name: x-c", "template app ", "--namespace prod", "--kube-version 1.37", "--api-versions example.com/v1"} {
		if !strings.Contains(strings.Join(strings.Fields(string(got)), " "), want) {
			t.Errorf("built\n%s\nwithout %q", got, want)
		}
	}
	if _, err := Build(dir, Options{Helm: &Helm{Command: filepath.Join(dir, "none")}}); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("without the program: %v", err)
	}
}

// No kustomization file makes the check panic or run a program.
func FuzzKustomization(f *testing.F) {
	f.Add("resources: [c.yaml]")
	f.Add("transformers:\n- |-\n  apiVersion: builtin\n  kind: PatchTransformer\n  path: x\n")
	f.Add("configMapGenerator: [{name: a, files: [a=b]}]")
	f.Fuzz(func(t *testing.T, text string) {
		_ = checkKustomization("kustomization.yaml", []byte(text))
		_ = checkPlugins("t.yaml", []byte(text))
	})
}
