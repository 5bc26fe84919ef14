package drivers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"podium/pkg/backoff"
)

const (
	portal = "10.0.0.1:3260"
	second = "10.0.0.2:3260"
	over6  = "[fd00::1]:3260" // by IPv6
	iqn    = "iqn.2001-04.com.example:a"
)

// rig is a host whose programs are scripted: iscsiadm keeps records and sessions as the
// real one does, a login or a rescan makes the devices of LUN 0 and 1, and blkid and mkfs
// know which LUNs have a file system.
type rig struct {
	t    *testing.T
	root string

	mu         sync.Mutex
	records    map[string]map[string]string // of iscsiadm, by the arguments that name them
	sessions   map[string]bool              // by portal and interface
	devices    map[string][]string          // of LUN 0 and 1, by portal; they keep their names
	blank      map[string]bool              // LUNs
	mounts     map[string]string            // target: source
	calls      []string
	password   string          // what targets want; "": no authentication
	dead       map[string]bool // portals that refuse
	silent     map[string]bool // portals that do not answer
	fail       map[string]*ProgramError
	takes      map[string]time.Duration // programs
	hang       chan struct{}            // unmounts wait until it is closed; nil: they do not
	lag        time.Duration            // of udev, after a device is deleted
	blip       bool                     // the next blkid cannot read its device
	unreadable map[string]bool          // devices; blkid finds nothing on them
	busy       map[string]bool          // devices with a file system that is mounted, also where the driver does not see it
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, root: t.TempDir(), records: map[string]map[string]string{}, sessions: map[string]bool{}, mounts: map[string]string{},
		devices: map[string][]string{portal: {"sda", "sdb"}, second: {"sdc", "sdd"}, over6: {"sde", "sdf"}}, blank: map[string]bool{"0": true, "1": true},
		dead: map[string]bool{}, silent: map[string]bool{}, fail: map[string]*ProgramError{}, busy: map[string]bool{}, unreadable: map[string]bool{}}
	for _, dir := range []string{"dev/disk/by-path", "sys/class/block", "stage", "pods"} {
		if err := os.MkdirAll(filepath.Join(r.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (r *rig) host() Host {
	return Host{Mounter: r, Run: r.run, Root: r.root, Force: func(target string) error { r.called("force " + target); return nil }, Claim: func(device string) error {
		if r.busy[filepath.Base(device)] {
			return unix.EBUSY
		}
		return nil
	}, Delete: func(device string) error {
		r.called("delete " + device)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.lag == 0 {
			r.unplug(filepath.Base(device))
			return nil
		}
		time.AfterFunc(r.lag, func() { r.unplug(filepath.Base(device)) })
		return os.Remove(device)
	}, Read: func(device string) error {
		if r.unreadable[filepath.Base(device)] {
			return unix.EIO
		}
		return nil
	}}
}

func (r *rig) iscsi() *ISCSI {
	return NewISCSI(r.host(), filepath.Join(r.root, "records"), slog.New(slog.DiscardHandler))
}

func (r *rig) called(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, strings.ReplaceAll(call, r.root, ""))
}

// did returns the calls since the last time that begin with one of the words.
func (r *rig) did(words ...string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.DeleteFunc(r.calls, func(c string) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(c, w) })
	})
	r.calls = nil
	return out
}

func (r *rig) run(ctx context.Context, program string, args ...string) (string, error) {
	r.called(program + " " + strings.Join(args, " "))
	if err := r.wait(ctx, program, args); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fail := func(code int, output string) (string, error) { return output, &ProgramError{program, code, output} }
	if err := r.fail[program]; err != nil {
		return err.Output, err
	}
	last := filepath.Base(args[len(args)-1])
	lun := r.lunOf(last)
	switch {
	case program == "iscsiadm":
		return r.iscsiadm(args, fail)
	case program == "blkid" && r.blip:
		r.blip = false
		return fail(nothingFound, "")
	case program == "blkid" && (r.blank[lun] || r.unreadable[last]):
		return fail(nothingFound, "")
	case program == "blkid":
		return "DEVNAME=/dev/x\nTYPE=ext4\n", nil
	case strings.HasPrefix(program, "mkfs."):
		r.blank[lun] = false
	case program == "multipath":
		holders, _ := filepath.Glob(filepath.Join(r.root, "sys/class/block/*/holders", filepath.Base(args[len(args)-1])))
		for _, h := range holders {
			_ = os.RemoveAll(h)
		}
	case program == "mount":
		r.mounts[args[len(args)-1]] = args[len(args)-2]
	}
	return "", nil
}

// wait blocks as long as a program does, or until ctx ends.
func (r *rig) wait(ctx context.Context, program string, args []string) error {
	wait := r.takes[program]
	if i := slices.Index(args, "-p"); i >= 0 && r.silent[args[i+1]] && (slices.Contains(args, "--login") || slices.Contains(args, "--discover")) {
		wait = 2 * time.Minute // iscsid's default
	}
	if wait == 0 {
		return ctx.Err()
	}
	return backoff.Sleep(ctx, wait)
}

func (r *rig) iscsiadm(args []string, fail func(int, string) (string, error)) (string, error) {
	value := func(flag string) string {
		if i := slices.Index(args, flag); i >= 0 {
			return args[i+1]
		}
		return ""
	}
	name := strings.Join([]string{value("-m"), value("-p"), value("-T"), value("-I")}, " ")
	at, session := value("-p"), value("-p")+" "+value("-I")
	switch {
	case value("-o") == "new":
		r.records[name] = map[string]string{}
	case value("-o") == "update":
		if r.records[name] == nil {
			return fail(noObjects, "iscsiadm: No records found")
		}
		r.records[name][value("-n")] = value("-v")
	case value("-o") == "delete", value("-o") == "show":
		if r.records[name] == nil {
			if value("-m") == "discoverydb" {
				return fail(noDiscovery, "iscsiadm: Discovery record not found.")
			}
			return fail(noObjects, "iscsiadm: No records found")
		}
		if value("-o") == "delete" {
			delete(r.records, name)
			if value("-m") == "discoverydb" { // and those of the portal's targets
				delete(r.records, strings.Join([]string{"node", at, iqn, value("-I")}, " "))
			}
		}
	case slices.Contains(args, "--discover"):
		if r.dead[at] {
			return fail(4, "iscsiadm: connection login retries (reopen_max) 5 exceeded")
		}
		r.records[strings.Join([]string{"node", at, iqn, value("-I")}, " ")] = map[string]string{}
	case slices.Contains(args, "--login"):
		switch {
		case r.dead[at]:
			return fail(8, "iscsiadm: connection timed out")
		case r.records[name] == nil:
			return fail(noObjects, "iscsiadm: No records found")
		case r.sessions[session]:
			return fail(sessionExists, "iscsiadm: session already present")
		case r.records[name]["node.session.auth.password"] != r.password:
			return fail(24, "iscsiadm: initiator reported error (24 - iSCSI login failed due to authorization failure)")
		}
		r.sessions[session] = true
		r.scan(at)
	case slices.Contains(args, "--rescan"):
		if !r.sessions[session] {
			return fail(noObjects, "iscsiadm: No session found.")
		}
		r.scan(at)
	case slices.Contains(args, "--logout"):
		if !r.sessions[session] {
			return fail(noObjects, "iscsiadm: No matching sessions found")
		}
		delete(r.sessions, session)
		if !r.open(at) {
			for _, device := range r.devices[at] {
				r.unplug(device)
			}
		}
	}
	return "", nil
}

// open reports whether there is a session at a portal.
func (r *rig) open(at string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(r.sessions)), func(s string) bool { return strings.HasPrefix(s, at+" ") })
}

// lunOf returns the LUN of a device.
func (r *rig) lunOf(device string) string {
	for _, devices := range r.devices {
		if lun := slices.Index(devices, device); lun >= 0 {
			return strconv.Itoa(lun)
		}
	}
	return "0" // multipathd's
}

// scan makes the devices at a portal that do not exist.
func (r *rig) scan(at string) {
	for lun, device := range r.devices[at] {
		if err := os.WriteFile(filepath.Join(r.root, "dev", device), nil, 0o600); err != nil {
			r.t.Error(err)
		}
		link := filepath.Join(r.root, "dev/disk/by-path", fmt.Sprintf("ip-%s-iscsi-%s-lun-%d", strings.Trim(strings.Replace(at, "]:", ":", 1), "["), iqn, lun))
		if err := os.Symlink("../../"+device, link); err != nil && !errors.Is(err, fs.ErrExist) {
			r.t.Error(err)
		}
	}
}

// unplug removes a device and its names.
func (r *rig) unplug(device string) {
	links, _ := filepath.Glob(filepath.Join(r.root, "dev/disk/by-path/*"))
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && filepath.Base(to) == device {
			_ = os.Remove(link)
		}
	}
	_ = os.Remove(filepath.Join(r.root, "dev", device))
}

// The Mounter.

func (r *rig) Mount(_, _, _ string) error { panic("unused") }

func (r *rig) Bind(fd int, target string) error {
	source, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	r.called("bind " + source + " " + target)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mounts[target] = source
	return err
}

func (r *rig) Unmount(target string) error {
	r.called("unmount " + target)
	if r.hang != nil {
		<-r.hang
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mounts, target)
	return nil
}

func (r *rig) Under(dir string) (out []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for target := range r.mounts {
		if target == dir || strings.HasPrefix(target, dir+"/") {
			out = append(out, target)
		}
	}
	return out, nil
}

func (r *rig) at(parts ...string) string { return filepath.Join(append([]string{r.root}, parts...)...) }

func fileSystem(fsType string, options ...string) *spec.VolumeCapability {
	return &spec.VolumeCapability{AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{FsType: fsType, MountFlags: options}}}
}

func block() *spec.VolumeCapability {
	return &spec.VolumeCapability{AccessType: &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}}}
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant:\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
