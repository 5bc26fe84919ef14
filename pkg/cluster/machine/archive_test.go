package machine

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// packed is an archive of what is given, in this order.
func packed(t testing.TB, c contents, files ...[2]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	head, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append([][2]string{{contentsName, string(head)}}, files...) {
		if err := addFile(w, f[0], time.Unix(0, 0), int64(len(f[1])), strings.NewReader(f[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestArchiveComesBackWhole(t *testing.T) {
	dir, work := t.TempDir(), t.TempDir()
	write(t, filepath.Join(dir, "machine.yaml"), "nodeName: a\n")
	write(t, filepath.Join(dir, "pki/ca.key"), "key")
	write(t, filepath.Join(work, snapshotName), "database")
	c := contents{Format: archiveForm, Made: time.Unix(0, 0).UTC(), Files: map[string]string{
		snapshotName: hashOf("database"), "machine.yaml": hashOf("nodeName: a\n"), "pki/ca.key": hashOf("key"),
	}}
	var b bytes.Buffer
	if err := writeArchive(&b, c, filepath.Join(work, snapshotName), dir); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	got, err := unpack(&b, out)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, got); diff != "" {
		t.Error(diff)
	}
	want := map[string]string{"/machine.yaml": "nodeName: a\n", "/pki/ca.key": "key", "/etcd.db": "database"}
	if diff := cmp.Diff(want, tree(t, out)); diff != "" {
		t.Error(diff)
	}
}

// TestDamagedArchivesAreRefused: what is not exactly what was written is no backup.
func TestDamagedArchivesAreRefused(t *testing.T) {
	c := contents{Format: archiveForm, Files: map[string]string{snapshotName: hashOf("database"), "machine.yaml": hashOf("m")}}
	db, m := [2]string{snapshotName, "database"}, [2]string{"machine.yaml", "m"}
	with := func(name, hash string) contents {
		out := contents{Format: archiveForm, Files: map[string]string{snapshotName: hashOf("database"), name: hash}}
		return out
	}
	whole := packed(t, c, db, m)
	for name, row := range map[string]struct {
		data []byte
		want string
	}{
		"NoArchive":     {[]byte("a text file"), "no backup by podium"},
		"CutOff":        {whole[:len(whole)-30], "damaged"},
		"Changed":       {packed(t, c, db, [2]string{"machine.yaml", "x"}), "another hash"},
		"Missing":       {packed(t, c, db), "1 files are missing"},
		"Unlisted":      {packed(t, c, db, m, [2]string{"pki/extra.key", "x"}), "do not list"},
		"Twice":         {packed(t, c, db, m, m), "do not list"},
		"NoSnapshot":    {packed(t, contents{Format: archiveForm, Files: map[string]string{"machine.yaml": hashOf("m")}}, m), "no snapshot"},
		"NextForm":      {packed(t, contents{Format: "podium-backup/v9", Files: c.Files}, db, m), "podium-backup/v9"},
		"Outside":       {packed(t, with("../evil", hashOf("x")), db, [2]string{"../evil", "x"}), "do not list"},
		"Absolute":      {packed(t, with("/etc/passwd", hashOf("x")), db, [2]string{"/etc/passwd", "x"}), "do not list"},
		"Roundabout":    {packed(t, with("a/../b", hashOf("x")), db, [2]string{"a/../b", "x"}), "do not list"},
		"NotCompressed": {[]byte{0x1f, 0x8b, 0, 0}, "no backup by podium"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := unpack(bytes.NewReader(row.data), filepath.Join(dir, "in"))
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q", err, row.want)
			}
			if _, err := os.Stat(filepath.Join(dir, "evil")); err == nil {
				t.Error("a file was written outside the folder")
			}
		})
	}
}

func TestSnapshotsAreChecked(t *testing.T) {
	sum := sha256.Sum256([]byte("database"))
	whole := append([]byte("database"), sum[:]...)
	if err := checkSnapshot(bytes.NewReader(whole), int64(len(whole))); err != nil {
		t.Error(err)
	}
	for _, bad := range [][]byte{nil, whole[:20], whole[1:], append([]byte("x"), whole...), whole[:len(whole)-1]} {
		if err := checkSnapshot(bytes.NewReader(bad), int64(len(bad))); err == nil {
			t.Errorf("%q was taken for a snapshot", bad)
		}
	}
}

// TestRestoreChangesNothingWhenTheBackupIsNotForHere: nor when it is damaged.
func TestRestoreChangesNothingWhenTheBackupIsNotForHere(t *testing.T) {
	sum := sha256.Sum256([]byte("database"))
	db := "database" + string(sum[:])
	setup := "nodeName: a\nnodeIP: 192.0.2.99\nclusterName: podium\ncontrolPlaneEndpoint: 192.0.2.99:6443\npodSubnet: 10.244.0.0/16\nserviceSubnet: 10.96.0.0/16\ndnsDomain: cluster.local\nbindPort: 6443\ncontrolPlanePlacement: dedicated\ncgroupDriver: systemd\n"
	elsewhere := packed(t, contents{Format: archiveForm, Files: map[string]string{snapshotName: hashOf(db), "machine.yaml": hashOf(setup)}},
		[2]string{snapshotName, db}, [2]string{"machine.yaml", setup})
	for name, row := range map[string]struct {
		data []byte
		want string
	}{
		"OtherAddress": {elsewhere, "give it that address first"},
		"CutOff":       {elsewhere[:len(elsewhere)/2], "nothing was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			host, cfg := newHost(t)
			file := cfg.at("/backup")
			write(t, file, string(row.data))
			write(t, cfg.at(etcdData, "member"), "precious")
			before := tree(t, cfg.Root)
			err := Restore(t.Context(), cfg, host, file)
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q", err, row.want)
			}
			if diff := cmp.Diff(before, tree(t, cfg.Root)); diff != "" {
				t.Errorf("files changed:\n%s", diff)
			}
			if len(host.ran) > 0 {
				t.Errorf("ran %v", host.ran)
			}
		})
	}
}

func FuzzUnpack(f *testing.F) {
	c := contents{Format: archiveForm, Files: map[string]string{snapshotName: hashOf("d")}}
	f.Add(packed(f, c, [2]string{snapshotName, "d"}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		_, _ = unpack(bytes.NewReader(data), filepath.Join(dir, "in"))
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) > 1 || len(entries) == 1 && entries[0].Name() != "in" {
			t.Errorf("written outside: %v, %v", entries, err)
		}
	})
}
