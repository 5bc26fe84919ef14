// Package podsecurity is the admission plugin PodSecurity: it holds pods to the
// Pod Security Standards that their namespace's labels demand. The checks are
// upstream's (k8s.io/pod-security-admission/policy).
//
//	config.go     defaults and exemptions of the whole cluster
//	plugin.go     pods and pod templates
//	namespace.go  changes of a namespace's labels
//
// https://kubernetes.io/docs/concepts/security/pod-security-admission/
package podsecurity
