// Package kuberc reads and writes the user's preferences: default values of flags, and aliases of
// commands, in kubectl's format (kubectl.config.k8s.io/v1beta1, Preference).
package kuberc
