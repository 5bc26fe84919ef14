package csitest

import (
	"slices"

	"golang.org/x/sys/unix"

	"podium/pkg/kubelet/volumes"
)

// Kernel mounts with system calls.
type Kernel struct{}

// Bind bind-mounts a directory.
func (Kernel) Bind(source, target string, readOnly bool) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil || !readOnly {
		return err
	}
	return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

// Unmount unmounts a target.
func (Kernel) Unmount(target string) error { return unix.Unmount(target, unix.UMOUNT_NOFOLLOW) }

// Mounted reports whether something is mounted on a target.
func (Kernel) Mounted(target string) (bool, error) {
	points, err := volumes.Kernel{}.Under(target)
	return slices.Contains(points, target), err
}
