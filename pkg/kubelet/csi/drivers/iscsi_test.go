package drivers

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
)

// attributes returns those of a LUN, and more, as key and value in turn.
func attributes(lun string, more ...string) map[string]string {
	out := map[string]string{"portals": portal, "iqn": iqn, "lun": lun, "iscsiInterface": "default"}
	for i := 0; i < len(more); i += 2 {
		out[more[i]] = more[i+1]
	}
	return out
}

func (r *rig) stage(s *ISCSI, volume string, c *spec.VolumeCapability, about, secrets map[string]string) error {
	_, err := s.NodeStageVolume(r.t.Context(), &spec.NodeStageVolumeRequest{
		VolumeId: volume, StagingTargetPath: r.at("stage", volume), VolumeCapability: c, VolumeContext: about, Secrets: secrets})
	return err
}

func (r *rig) unstage(s *ISCSI, volume string) {
	r.t.Helper()
	if _, err := s.NodeUnstageVolume(r.t.Context(), &spec.NodeUnstageVolumeRequest{VolumeId: volume, StagingTargetPath: r.at("stage", volume)}); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// clean checks that no session, record or mount is left.
func (r *rig) clean() {
	r.t.Helper()
	left, err := os.ReadDir(r.at("records"))
	if err != nil || len(left)+len(r.sessions)+len(r.records)+len(r.mounts) > 0 {
		r.t.Errorf("left behind: records %v (%v) and %v, sessions %v, mounts %v", left, err, r.records, r.sessions, r.mounts)
	}
}

// TestISCSI checks that a blank device gets a file system once, that two LUNs share a
// session, and that its last user ends it, also after a restart.
func TestISCSI(t *testing.T) {
	r := newRig(t)
	s := r.iscsi()
	for range 2 {
		r.must(r.stage(s, "zero", fileSystem("ext4", "noatime"), attributes("0"), nil))
	}
	same(t, "calls", r.did("iscsiadm -m node", "blkid", "mkfs", "mount"), []string{
		"iscsiadm -m node -p 10.0.0.1:3260 -T " + iqn + " -I default -o new",
		"iscsiadm -m node -p 10.0.0.1:3260 -T " + iqn + " -I default -o update -n node.startup -v manual",
		"iscsiadm -m node -p 10.0.0.1:3260 -T " + iqn + " -I default -o update -n node.session.initial_login_retry_max -v 1",
		"iscsiadm -m node -p 10.0.0.1:3260 -T " + iqn + " -I default --login",
		"blkid -p -s TYPE -s PTTYPE -o export /dev/sda",
		"blkid -p -s TYPE -s PTTYPE -o export /dev/sda",
		"mkfs.ext4 -F -m0 /dev/sda",
		"mount -t ext4 -o noatime -- /dev/sda /stage/zero",
	})
	r.must(r.stage(s, "one", block(), attributes("1"), nil))
	publish := &spec.NodePublishVolumeRequest{VolumeId: "one", StagingTargetPath: r.at("stage/one"), TargetPath: r.at("pods/one"), VolumeCapability: block(), VolumeContext: attributes("1")}
	_, err := s.NodePublishVolume(t.Context(), publish)
	r.must(err)
	same(t, "a scan in the same session", r.did("iscsiadm -m node", "mkfs", "bind"), []string{
		"iscsiadm -m node -p 10.0.0.1:3260 -T " + iqn + " -I default --rescan",
		"bind /dev/sdb /pods/one",
	})

	s = r.iscsi()
	r.unstage(s, "zero")
	if !r.open(portal) {
		t.Error("the session ended while a volume used it")
	}
	_, err = s.NodeUnpublishVolume(t.Context(), &spec.NodeUnpublishVolumeRequest{VolumeId: "one", TargetPath: r.at("pods/one")})
	r.must(err)
	for range 2 {
		r.unstage(s, "one")
	}
	r.clean()

	r.did()
	r.must(r.stage(s, "zero", fileSystem("ext4"), attributes("0", "readOnly", "true"), nil))
	same(t, "read-only", r.did("fsck", "mkfs", "mount"), []string{"mount -t ext4 -o ro -- /dev/sda /stage/zero"})
	r.unstage(s, "zero")
	r.must(r.stage(s, "zero", fileSystem("ext4"), attributes("0"), nil))
	same(t, "again", r.did("fsck", "mkfs", "mount"), []string{"fsck -a /dev/sda", "mount -t ext4 -- /dev/sda /stage/zero"})
	r.unstage(s, "zero")
	r.clean()
}

// TestISCSIStaysWhileMounted checks that the session does not end while a process uses the
// file system, also after its mount was detached.
func TestISCSIStaysWhileMounted(t *testing.T) {
	r := newRig(t)
	s := r.iscsi()
	r.must(r.stage(s, "zero", fileSystem("ext4"), attributes("0"), nil))
	r.busy["sda"] = true
	_, err := s.NodeUnstageVolume(t.Context(), &spec.NodeUnstageVolumeRequest{VolumeId: "zero", StagingTargetPath: r.at("stage/zero")})
	if err == nil || !strings.Contains(err.Error(), "/dev/sda is still mounted") || !r.open(portal) {
		t.Errorf("error %v, want that the device is mounted; sessions %v", err, r.sessions)
	}
	r.busy["sda"] = false
	r.unstage(s, "zero")
	r.clean()
}

// TestISCSIStaysForItsPaths mounts a disk by the second of two portals, as the first one did
// not answer. After a restart both have sessions, of which that of the first is idle. None
// ends while the mount is in use.
func TestISCSIStaysForItsPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		about := attributes("0", "portals", portal+","+second)
		r.dead[portal] = true
		r.must(r.stage(r.iscsi(), "v", fileSystem("ext4"), about, nil))
		r.dead[portal] = false
		s := r.iscsi()
		r.must(r.stage(s, "v", fileSystem("ext4"), about, nil))
		same(t, "mounts", r.did("mount"), []string{"mount -t ext4 -- /dev/sdc /stage/v"})
		r.busy["sdc"] = true
		_, err := s.NodeUnstageVolume(t.Context(), &spec.NodeUnstageVolumeRequest{VolumeId: "v", StagingTargetPath: r.at("stage/v")})
		if err == nil || !strings.Contains(err.Error(), "/dev/sdc is still mounted") || !r.open(portal) || !r.open(second) {
			t.Errorf("error %v, want that the second device is mounted; sessions %v", err, r.sessions)
		}
		r.busy["sdc"] = false
		r.unstage(s, "v")
		r.clean()
	})
}

// TestISCSISessionOfTheHost checks that a session that the host has opened for a disk of its
// own outlives the volume that uses it too.
func TestISCSISessionOfTheHost(t *testing.T) {
	r := newRig(t)
	r.sessions[portal+" default"] = true
	r.scan(portal)
	r.busy["sda"] = true
	s := r.iscsi()
	r.must(r.stage(s, "one", fileSystem("ext4"), attributes("1"), nil))
	r.unstage(s, "one")
	same(t, "the host's session", r.did("delete", "iscsiadm"), []string{
		"delete /dev/sdb", "iscsiadm -m node -p 10.0.0.1:3260 -T " + iqn + " -I default --rescan", "delete /dev/sdb"})
	if _, err := os.Stat(r.at("dev/sda")); err != nil || !r.open(portal) {
		t.Errorf("the host's disk: error %v, sessions %v", err, r.sessions)
	}
	r.must(r.stage(s, "zero", block(), attributes("0"), nil))
	same(t, "the host's disk", r.did("delete", "iscsiadm"), nil)
}

// TestISCSISessionsOfTwoInitiators checks that the session of one initiator ends while a
// volume uses that of another one.
func TestISCSISessionsOfTwoInitiators(t *testing.T) {
	r := newRig(t)
	s := r.iscsi()
	r.must(r.stage(s, "one", fileSystem("ext4"), attributes("1", "initiatorName", "iqn.2001-04.com.example:me", "iscsiInterface", "10.0.0.1:one"), nil))
	r.must(r.stage(s, "zero", fileSystem("ext4"), attributes("0"), nil))
	r.busy["sdb"] = true
	r.unstage(s, "zero")
	if len(r.sessions) != 1 || !r.sessions[portal+" 10.0.0.1:one"] {
		t.Errorf("sessions %v, want that of the other initiator", r.sessions)
	}
	r.busy["sdb"] = false
	r.unstage(s, "one")
	r.clean()
}

// TestISCSIReusedLUN checks that a volume does not get the device of a disk that the target
// has removed: neither one of an earlier volume, nor one that nothing has used.
func TestISCSIReusedLUN(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lag = time.Second
		s := r.iscsi()
		const rescan = "iscsiadm -m node -p 10.0.0.1:3260 -T " + iqn + " -I default --rescan"
		r.must(r.stage(s, "zero", fileSystem("ext4"), attributes("0"), nil))
		r.did()
		begin := time.Now()
		r.must(r.stage(s, "one", fileSystem("ext4"), attributes("1"), nil))
		same(t, "a device that nothing has used", r.did("delete", "iscsiadm", "mount"), []string{"delete /dev/sdb", rescan, "mount -t ext4 -- /dev/sdb /stage/one"})
		if time.Since(begin) < r.lag {
			t.Error("the scan did not wait for udev")
		}

		s = r.iscsi()
		r.must(r.stage(s, "one", fileSystem("ext4"), attributes("1"), nil))
		same(t, "after a restart", r.did("delete", "iscsiadm"), nil)
		r.unstage(s, "one")
		same(t, "the end of one volume", r.did("delete", "iscsiadm"), []string{"delete /dev/sdb"})
		if _, err := os.Stat(r.at("dev/sdb")); !os.IsNotExist(err) || !r.open(portal) {
			t.Errorf("its device: error %v; sessions %v", err, r.sessions)
		}
		r.must(r.stage(s, "one", fileSystem("ext4"), attributes("1"), nil))
		same(t, "the next one", r.did("delete", "iscsiadm"), []string{rescan})

		about := attributes("1", "chapAuthSession", "true") // of another Secret, which is a part of the handle
		if err := r.stage(s, "other", fileSystem("ext4"), about, map[string]string{"node.session.auth.username": "u"}); !errors.Is(err, errCredentials) {
			t.Errorf("other credentials: error %v", err)
		}
		r.busy["sdb"] = true
		r.unstage(s, "other")
		same(t, "a disk that another volume uses", r.did("delete"), nil)
		r.busy["sdb"] = false
		r.unstage(s, "one")
		r.unstage(s, "zero")
		r.clean()
	})
}

// TestISCSIDiscovery checks that two volumes that authenticate their discovery, of which
// the records are common, are removed one after the other.
func TestISCSIDiscovery(t *testing.T) {
	r := newRig(t)
	s := r.iscsi()
	secrets := map[string]string{"discovery.sendtargets.auth.username": "u", "discovery.sendtargets.auth.password": "p"}
	r.must(r.stage(s, "zero", fileSystem("ext4"), attributes("0", "chapAuthDiscovery", "true"), secrets))
	same(t, "discovery", r.did("iscsiadm -m discoverydb"), []string{
		"iscsiadm -m discoverydb -t sendtargets -p 10.0.0.1:3260 -I default -o new",
		"iscsiadm -m discoverydb -t sendtargets -p 10.0.0.1:3260 -I default -o update -n discovery.sendtargets.auth.authmethod -v CHAP",
		"iscsiadm -m discoverydb -t sendtargets -p 10.0.0.1:3260 -I default -o update -n discovery.sendtargets.auth.username -v u",
		"iscsiadm -m discoverydb -t sendtargets -p 10.0.0.1:3260 -I default -o update -n discovery.sendtargets.auth.password -v p",
		"iscsiadm -m discoverydb -t sendtargets -p 10.0.0.1:3260 -I default --discover",
	})
	r.must(s.forget(t.Context(), (&disk{Interface: "default"}).discovery(portal))) // as another volume of the portal does
	r.unstage(s, "zero")
	r.clean()
}

// TestISCSICredentials checks that a target's password is needed by each volume that uses
// its session, and that no error has it.
func TestISCSICredentials(t *testing.T) {
	r := newRig(t)
	r.password = "right-password"
	s := r.iscsi()
	secrets := func(password string) map[string]string {
		return map[string]string{"node.session.auth.username": "u", "node.session.auth.password": password}
	}
	chap := []string{"chapAuthSession", "true"}
	refused := func(what string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "password-") || strings.Contains(err.Error(), "right") {
			t.Errorf("%s: error %v, want %q without the password", what, err, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r.t = t
		refused("a wrong password", r.stage(s, "wrong", fileSystem("ext4"), attributes("0", chap...), secrets("password-wrong")), "authorization failure")
		r.unstage(s, "wrong")
		refused("no password", r.stage(s, "none", fileSystem("ext4"), attributes("0"), nil), "authorization failure")
		r.unstage(s, "none")
		refused("an empty Secret", r.stage(s, "empty", fileSystem("ext4"), attributes("0", chap...), nil), "the Secret has no node.session.auth.username")
		r.unstage(s, "empty")
		r.clean()
		refused("a wrong password", r.stage(s, "wrong", fileSystem("ext4"), attributes("0", chap...), secrets("password-wrong")), "authorization failure")
		r.must(r.stage(s, "zero", fileSystem("ext4"), attributes("0", chap...), secrets("right-password"))) // a volume without a session refuses no other
		r.unstage(s, "wrong")
		r.did()
		refused("no password for a disk that nothing uses", r.stage(s, "none", fileSystem("ext4"), attributes("1"), nil), "other credentials")
		same(t, "of a refused volume", r.did("iscsiadm", "delete"), nil)
		r.must(r.stage(s, "one", fileSystem("ext4"), attributes("1", chap...), secrets("right-password")))
		refused("no password for an open session", r.stage(s, "none", fileSystem("ext4"), attributes("1"), nil), "other credentials")
		r.unstage(s, "none")
		refused("another password", r.stage(s, "wrong", fileSystem("ext4"), attributes("1", chap...), secrets("password-wrong")), "other credentials")
		r.unstage(s, "wrong")
		if !r.open(portal) {
			t.Error("a refused volume ended the session")
		}
		r.unstage(s, "zero")
		r.unstage(s, "one")
		r.clean()
	})
}

// TestISCSIPortals checks that one portal that answers is enough, that multipathd's device
// is preferred, and that an initiator gets an interface of its own.
func TestISCSIPortals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := r.iscsi()
		both := attributes("0", "portals", portal+","+second, "initiatorName", "iqn.2001-04.com.example:me", "iscsiInterface", "10.0.0.1:v")
		r.dead[second] = true
		r.must(r.stage(s, "v", fileSystem("ext4"), both, nil))
		same(t, "interface", r.did("iscsiadm -m iface"), []string{
			"iscsiadm -m iface -I 10.0.0.1:v -o show", "iscsiadm -m iface -I 10.0.0.1:v -o new",
			"iscsiadm -m iface -I 10.0.0.1:v -o update -n iface.initiatorname -v iqn.2001-04.com.example:me"})
		r.unstage(s, "v")
		r.clean()

		r.did()
		r.must(os.MkdirAll(r.at("sys/class/block/sda/holders/dm-3"), 0o755))
		r.must(os.MkdirAll(r.at("sys/class/block/dm-3/dm"), 0o755))
		r.must(os.WriteFile(r.at("sys/class/block/dm-3/dm/uuid"), []byte("mpath-x\n"), 0o644))
		r.must(r.stage(s, "v", fileSystem("ext4"), both, nil))
		r.unstage(s, "v")
		same(t, "multipath", r.did("mount", "multipath"), []string{"mount -t ext4 -- /dev/dm-3 /stage/v", "multipath -f /dev/dm-3"})
		r.clean()

		r.dead[portal] = true
		if err := r.stage(s, "v", fileSystem("ext4"), both, nil); err == nil || !strings.Contains(err.Error(), "portal 10.0.0.1:3260: log in") || !strings.Contains(err.Error(), "portal 10.0.0.2:3260: log in") {
			t.Errorf("no portal answers: error %v", err)
		}
		r.unstage(s, "v")
		r.clean()
	})
}

// TestISCSIDamagedRecord checks that a record that a power failure has left empty does not
// concern other volumes, and that it is put aside when its own volume is unstaged.
func TestISCSIDamagedRecord(t *testing.T) {
	r := newRig(t)
	s := r.iscsi()
	r.must(os.Mkdir(r.at("records"), 0o755))
	for _, volume := range []string{"torn", "other"} {
		r.must(os.WriteFile(s.records.file(volume), nil, 0o600))
	}
	r.must(r.stage(s, "zero", fileSystem("ext4"), attributes("0"), nil))
	r.unstage(s, "zero")
	r.must(os.WriteFile(s.records.file("torn"), nil, 0o600))
	r.unstage(s, "torn")
	for _, volume := range []string{"torn", "other"} {
		r.must(os.Remove(s.records.file(volume) + ".damaged"))
	}
	r.clean()
}

// TestISCSIRestagedByAnotherPod kills the kubelet after it has staged a volume for one pod.
// The next kubelet stages it for another one, whose volume has the same handle, but another
// interface and other portals.
func TestISCSIRestagedByAnotherPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		about := func(pod, portals string) map[string]string {
			return attributes("0", "portals", portals, "initiatorName", "iqn.2001-04.com.example:"+pod, "iscsiInterface", "10.0.0.1:"+pod)
		}
		r.must(r.stage(r.iscsi(), "v", fileSystem("ext4"), about("a", portal+","+second), nil))
		s := r.iscsi()
		r.must(r.stage(s, "v", fileSystem("ext4"), about("b", portal), nil))
		r.unstage(s, "v")
		r.clean()

		r.dead[portal], r.dead[second] = true, true
		if err := r.stage(s, "v", fileSystem("ext4"), about("a", portal), nil); err == nil {
			t.Error("no portal answers: no error")
		}
		r.dead[portal] = false
		r.did()
		r.must(r.stage(s, "v", fileSystem("ext4"), about("b", portal), nil))
		same(t, "interface of a volume without sessions", r.did("iscsiadm -m iface -I 10.0.0.1:a"), []string{"iscsiadm -m iface -I 10.0.0.1:a -o delete"})
		r.unstage(s, "v")
		r.clean()
	})
}

// TestISCSISilentPortal checks that a portal that does not answer leaves time for the
// others, and that a disk is formatted and checked as long as it takes, but no longer than
// the kubelet runs.
func TestISCSISilentPortal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := r.iscsi()
		r.silent[portal] = true
		r.takes = map[string]time.Duration{"mkfs.ext4": time.Hour, "fsck": time.Hour, "mount": time.Minute}
		about := attributes("0", "portals", portal+","+second)
		begin := time.Now()
		for _, program := range []string{"mkfs", "fsck"} {
			r.must(r.stage(s, "v", fileSystem("ext4"), about, nil))
			same(t, program, r.did(program, "mount"), []string{map[string]string{"mkfs": "mkfs.ext4 -F -m0 /dev/sdc", "fsck": "fsck -a /dev/sdc"}[program], "mount -t ext4 -- /dev/sdc /stage/v"})
			r.unstage(s, "v")
			r.clean()
		}
		if took := time.Since(begin); took > 2*time.Hour+4*time.Minute {
			t.Errorf("it took %s", took)
		}

		r.takes["mount"] = time.Hour
		if err := r.stage(s, "v", fileSystem("ext4"), about, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a mount that hangs: error %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		_, err := s.NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: r.at("stage/v"), VolumeCapability: fileSystem("ext4"), VolumeContext: about})
		if err == nil || ctx.Err() == nil {
			t.Errorf("the kubelet ends: error %v", err)
		}
		r.unstage(s, "v")
		r.clean()
	})
}

// TestISCSIOverIPv6 checks that the device of a portal with an IPv6 address is found.
func TestISCSIOverIPv6(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := r.iscsi()
		r.must(r.stage(s, "v", fileSystem("ext4"), attributes("1", "portals", over6), nil))
		same(t, "calls", r.did("iscsiadm -m node -p [fd00::1]:3260 -T "+iqn+" -I default --login", "mount"), []string{
			"iscsiadm -m node -p [fd00::1]:3260 -T " + iqn + " -I default --login", "mount -t ext4 -- /dev/sdf /stage/v"})
		r.unstage(s, "v")
		r.clean()
	})
}

func TestISCSIBadInput(t *testing.T) {
	r := newRig(t)
	s := r.iscsi()
	for name, c := range map[string]struct {
		about  map[string]string
		fsType string
		want   string
	}{
		"NoTarget":  {attributes("0", "iqn", ""), "ext4", `"" is no part`},
		"Option":    {attributes("0", "portals", "-p"), "ext4", `"-p" is no part`},
		"Interface": {attributes("0", "iscsiInterface", "../x"), "ext4", `"../x" is no iSCSI interface`},
		"Type":      {attributes("0"), "../ext4", `"../ext4" is no type of a file system`},
		"BlankRead": {attributes("0", "readOnly", "true"), "ext4", "has no file system, and the volume is read-only"},
	} {
		if err := r.stage(s, "v", fileSystem(c.fsType), c.about, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
		r.unstage(s, "v")
	}
	if err := r.stage(s, "v", fileSystem("ext4", "noatime,ro"), attributes("0"), nil); err == nil || !strings.Contains(err.Error(), "has no file system, and the volume is read-only") {
		t.Errorf("blank, with the option ro: error %v", err)
	}
	r.unstage(s, "v")
	same(t, "formatted", r.did("mkfs", "fsck"), nil)
	r.blank["0"] = false
	r.unreadable["sda"] = true
	if err := r.stage(s, "v", fileSystem("ext4"), attributes("0"), nil); !errors.Is(err, unix.EIO) {
		t.Errorf("a device that cannot be read: error %v", err)
	}
	r.unreadable["sda"] = false
	r.blip = true
	r.must(r.stage(s, "v", fileSystem("ext4"), attributes("0"), nil))
	r.unstage(s, "v")
	same(t, "formatted", r.did("mkfs"), nil)
	r.must(r.stage(s, "v", fileSystem("ext4", "ro"), attributes("0"), nil))
	r.unstage(s, "v")
	same(t, "with the option ro", r.did("mkfs", "fsck", "mount"), []string{"mount -t ext4 -o ro -- /dev/sda /stage/v"})
	r.fail["fsck"] = &ProgramError{"fsck", uncorrected, "UNEXPECTED INCONSISTENCY"}
	if err := r.stage(s, "v", fileSystem("ext4"), attributes("0"), nil); err == nil || !strings.Contains(err.Error(), "UNEXPECTED INCONSISTENCY") {
		t.Errorf("errors are left: error %v", err)
	}
	r.fail["fsck"] = &ProgramError{"fsck", 1, "errors corrected"}
	if err := r.stage(s, "v", fileSystem("ext4"), attributes("0"), nil); err != nil {
		t.Errorf("errors were corrected: error %v", err)
	}
}

func FuzzParseDisk(f *testing.F) {
	f.Add([]byte(`{"volume":"v","portals":["10.0.0.1:3260"],"iqn":"iqn.x","lun":"0","interface":"default"}`))
	f.Add([]byte(`{"volume":"v"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if d, err := parseDisk(data); err == nil && (d.Volume == "" || len(d.Portals) == 0) {
			t.Errorf("accepted %+v", d)
		}
	})
}
