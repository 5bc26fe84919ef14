// Package resources turns requests and limits into what the kernel knows:
// quality of service, CPU shares and quotas, memory limits, OOM scores, and the
// cgroups of pods (v1 and v2, by file system or by systemd). The arithmetic is
// plain functions; Cgroups is the only thing here that touches the machine.
package resources
