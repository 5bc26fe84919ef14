// Package kustomize builds kustomizations with kustomize's own library, from local
// files only. Plugins, functions and Helm charts, which run programs, are refused, as
// are remote entries, for which the library would run git or download files.
package kustomize
