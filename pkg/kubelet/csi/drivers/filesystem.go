package drivers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// nothingFound is the exit status of blkid for a device without contents that it knows.
const nothingFound = 2

// uncorrected is the bit of the exit status of fsck for errors that it left.
const uncorrected = 4

// programTimeout limits what reads a device, which may not answer.
const programTimeout = 2 * time.Minute

// mountDisk mounts a device's file system. It makes one if the device is blank. Neither it
// nor a check writes to the device if the volume is read-only.
func (h Host) mountDisk(ctx context.Context, device, target, fsType string, options []string, readOnly bool) error {
	if fsType == "" || strings.Trim(fsType, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return fmt.Errorf("%q is no type of a file system", fsType)
	}
	options = strings.FieldsFunc(strings.Join(options, ","), func(c rune) bool { return c == ',' })
	if readOnly && !slices.Contains(options, "ro") {
		options = append(options, "ro")
	}
	readOnly = slices.Contains(options, "ro")
	has, blank, err := h.contents(ctx, device)
	switch {
	case err != nil:
		return err
	case blank && readOnly:
		return fmt.Errorf("%s has no file system, and the volume is read-only", device)
	case blank:
		err = h.makeFilesystem(ctx, device, fsType)
	case !readOnly && strings.Contains(has, "\nTYPE=ext"):
		err = h.check(ctx, device)
	}
	if err != nil {
		return err
	}
	args := []string{"-t", fsType}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	_, err = h.briefly(ctx, "mount", append(args, "--", device, target)...)
	return err
}

// contents returns what blkid finds on a device. For blkid, a device that cannot be read is
// as blank as an empty one. So it has to find nothing twice, before and after the device was
// read.
func (h Host) contents(ctx context.Context, device string) (has string, blank bool, err error) {
	for range 2 {
		has, err := h.briefly(ctx, "blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", device)
		if !exited(err, nothingFound) {
			return has, false, err
		}
		if err := patiently(ctx, func() error { return h.Read(device) }); err != nil {
			return "", false, fmt.Errorf("read %s, which seems to have no file system: %w", device, err)
		}
	}
	return "", true, nil
}

// patiently calls f and waits for it no longer than for a device that does not answer. f may
// go on.
func patiently(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// briefly runs a program that reads a device.
func (h Host) briefly(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	return h.Run(ctx, program, args...)
}

func (h Host) makeFilesystem(ctx context.Context, device, fsType string) error {
	args := []string{device}
	if fsType == "ext3" || fsType == "ext4" {
		args = []string{"-F", "-m0", device} // the device has no partitions; no blocks are root's
	}
	_, err := h.Run(ctx, "mkfs."+fsType, args...)
	return err
}

// check repairs a file system that a crash has left, as far as that needs no decision.
func (h Host) check(ctx context.Context, device string) error {
	_, err := h.Run(ctx, "fsck", "-a", device)
	var failed *ProgramError
	if errors.As(err, &failed) && failed.Code&uncorrected == 0 {
		return nil
	}
	return err
}
