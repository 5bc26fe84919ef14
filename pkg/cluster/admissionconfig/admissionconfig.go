// Package admissionconfig writes the file that the apiserver of a new cluster
// reads by --admission-control-config-file: the Pod Security Standard of
// namespaces without a label for it.
package admissionconfig

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"podium/pkg/cluster/files"
)

// The levels of the Pod Security Standards. Privileged restricts nothing: it is
// what an apiserver does without a file, and upstream's default, since a
// stricter one would refuse the pods of many charts.
const (
	Privileged = "privileged"
	Baseline   = "baseline"
	Restricted = "restricted"
)

// Check returns an error for an unknown level; "" means Privileged.
func Check(level string) error {
	if all := Levels(); level != "" && !slices.Contains(all, level) {
		return fmt.Errorf("%q is not a Pod Security level: use %s", level, strings.Join(all, ", "))
	}
	return nil
}

// Levels returns all levels, the least restrictive first.
func Levels() []string { return []string{Privileged, Baseline, Restricted} }

// Restricts reports whether the level needs a configuration file.
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

// Write creates file with the configuration of a level that restricts; for
// another level it does nothing. It does not change an existing file, which
// belongs to the operator.
func Write(file, level string) error {
	if !Restricts(level) {
		return nil
	}
	var out bytes.Buffer
	if err := text.Execute(&out, level); err != nil {
		return err
	}
	return files.WriteNew(file, out.Bytes(), 0o600)
}
