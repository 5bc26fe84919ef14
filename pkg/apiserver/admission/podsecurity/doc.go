// Package podsecurity holds pods against the Pod Security Standards that their
// namespace's labels ask for, with the words of upstream.
//
//	standard.go   levels and versions: "restricted:v1.30"
//	labels.go     what a namespace asks for
//	checks.go     which check counts at which level and version
//	baseline.go, restricted.go   the checks
//	config.go     defaults and exemptions of the whole cluster
//	plugin.go     pods and templates; namespace.go: labels that change
package podsecurity
