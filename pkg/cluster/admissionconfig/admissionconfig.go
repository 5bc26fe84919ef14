// Package admissionconfig is what the apiserver of a new cluster reads by
// --admission-control-config-file: the Pod Security Standard of namespaces
// whose labels name none.
package admissionconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
)

// The levels of the Pod Security Standards. Privileged restricts nothing: it is
// what an apiserver does without a file, upstream's default too, since a
// stricter one refuses pods of charts that do not expect it.
const (
	Privileged = "privileged"
	Baseline   = "baseline"
	Restricted = "restricted"
)

// Check returns an error for a level that does not exist; "" is privileged.
func Check(level string) error {
	if all := Levels(); level != "" && !slices.Contains(all, level) {
		return fmt.Errorf("%q is not a Pod Security level: use %s", level, strings.Join(all, ", "))
	}
	return nil
}

// Levels returns all levels, the loosest first.
func Levels() []string { return []string{Privileged, Baseline, Restricted} }

// Restricts says whether the level needs a file.
func Restricts(level string) bool { return level != "" && level != Privileged }

var text = template.Must(template.New("").Parse(`apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: # of namespaces without labels pod-security.kubernetes.io/*
      enforce: {{.}}
      enforce-version: latest
      audit: {{.}}
      audit-version: latest
      warn: {{.}}
      warn-version: latest
    exemptions:
      namespaces: [kube-system]
`))

// Write makes sure that file holds the configuration of a level that restricts;
// for another it does nothing. A file that exists stays: it is the operator's.
func Write(file, level string) error {
	if !Restricts(level) {
		return nil
	}
	if _, err := os.Stat(file); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var out bytes.Buffer
	if err := text.Execute(&out, level); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", out.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
