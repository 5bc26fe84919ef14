// Package podspec defines the defaults and the validation of pod specs: which
// values are valid, which fields may change later, and which fields Podium
// rejects because it does not implement them. Pods, all kinds with a pod
// template, and the kubelet's static pods share it.
package podspec
