// Package podspec knows what a pod's spec may say: its defaults, its
// validation, what may change later, and what this server does not do and
// therefore refuses. Pods and everything with a pod template share it.
package podspec
