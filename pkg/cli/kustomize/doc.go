// Package kustomize builds kustomizations with kustomize's own library, from local
// files only. Plugins and functions, which run programs, are refused, as are remote
// entries, for which the library would run git or download files. Helm charts are refused
// unless the caller allows to run Helm.
package kustomize
