// Package podspec defines the defaults and the validation of pod specs: which
// values are valid, which fields may change later, and which fields this server
// rejects because it does not implement them. Pods and all kinds with a pod
// template share it.
package podspec
