// Package oom hears from the kernel's log whose processes were killed for want
// of memory. A container runtime learns of a container's end and of the reason
// by two ways, and where the container's cgroup goes at once it may never learn
// the reason.
package oom
