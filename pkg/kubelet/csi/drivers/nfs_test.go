package drivers

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
)

func nfsRequest(r *rig, server string, readOnly bool, c *spec.VolumeCapability) *spec.NodePublishVolumeRequest {
	return &spec.NodePublishVolumeRequest{TargetPath: r.at("pods/a"), Readonly: readOnly, VolumeCapability: c,
		VolumeContext: map[string]string{"server": server, "share": "/data"}}
}

func TestNFS(t *testing.T) {
	r := newRig(t)
	n := NewNFS(r.host())
	for range 2 { // a restarted kubelet publishes again
		if _, err := n.NodePublishVolume(t.Context(), nfsRequest(r, "fd00::1", true, fileSystem("", "soft", "vers=4.2"))); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "mounts", r.did("mount"), []string{"mount -t nfs -o soft,vers=4.2,ro -- [fd00::1]:/data /pods/a"})
	for range 2 {
		if _, err := n.NodeUnpublishVolume(t.Context(), &spec.NodeUnpublishVolumeRequest{TargetPath: r.at("pods/a")}); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "unmounts", r.did("unmount"), []string{"unmount /pods/a"})
}

func TestNFSErrors(t *testing.T) {
	for name, c := range map[string]struct {
		server, want string
		capability   *spec.VolumeCapability
		output       string // of mount(8)
	}{
		"Block":    {server: "s", capability: block(), want: "volumeMode Block is not supported"},
		"Option":   {server: "-ofoo", capability: fileSystem(""), want: `"-ofoo" is no NFS server`},
		"NoServer": {capability: fileSystem(""), want: `"" is no NFS server`},
		"Refused":  {server: "s", capability: fileSystem(""), output: "mount.nfs: access denied by server\n", want: "mount: exit status 32: mount.nfs: access denied by server"},
		"NoHelper": {server: "s", capability: fileSystem(""), output: "bad option; for several filesystems (e.g. nfs, cifs) you might need a /sbin/mount.<type> helper program.",
			want: "install nfs-common"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if c.output != "" {
				r.fail["mount"] = &ProgramError{"mount", 32, c.output}
			}
			_, err := NewNFS(r.host()).NodePublishVolume(t.Context(), nfsRequest(r, c.server, false, c.capability))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// TestNFSHangs checks that the unmount of a server that does not answer fails after its
// patience, ends the calls that wait for the server, and succeeds later.
func TestNFSHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		n := NewNFS(r.host())
		if _, err := n.NodePublishVolume(t.Context(), nfsRequest(r, "s", false, fileSystem(""))); err != nil {
			t.Fatal(err)
		}
		r.hang = make(chan struct{})
		begin := time.Now()
		_, err := n.NodeUnpublishVolume(t.Context(), &spec.NodeUnpublishVolumeRequest{TargetPath: r.at("pods/a")})
		if err == nil || !strings.Contains(err.Error(), "does not answer") || time.Since(begin) != unmountPatience {
			t.Errorf("error %v after %v, want that the server does not answer after %v", err, time.Since(begin), unmountPatience)
		}
		same(t, "forced", r.did("force"), []string{"force /pods/a"})
		close(r.hang)
		synctest.Wait()
		if _, err := n.NodeUnpublishVolume(t.Context(), &spec.NodeUnpublishVolumeRequest{TargetPath: r.at("pods/a")}); err != nil {
			t.Error(err)
		}
	})
}
