// Package resources translates requests and limits into kernel settings: QoS
// classes, CPU shares and quotas, memory limits, OOM scores, and the cgroups of pods
// (v1 and v2, through the file system or systemd). All but Cgroups are pure
// functions.
package resources
