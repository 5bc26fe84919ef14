// Package hardware describes the CPUs and the NUMA nodes of the machine as the
// kernel shows them in sysfs.
package hardware
