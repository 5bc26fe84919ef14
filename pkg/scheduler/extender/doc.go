// Package extender asks scheduler extenders: HTTP servers that filter and rank nodes, choose
// victims of preemption and bind pods, as the field extenders of upstream's
// KubeSchedulerConfiguration lists them. An extender is not trusted: what it answers is bounded
// in size and time, and checked.
// https://kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1/#Extender
package extender
