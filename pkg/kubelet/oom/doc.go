// Package oom reads from the kernel's log which containers the OOM killer has hit.
// A container runtime gets the exit of a container and its reason separately; if
// the container's cgroup is removed at once, it may never get the reason.
package oom
