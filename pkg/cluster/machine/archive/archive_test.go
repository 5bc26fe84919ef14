package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
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

// packed returns an archive with c and these files (name and content), in this
// order.
func packed(t testing.TB, c Contents, files ...[2]string) []byte {
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
	write(t, filepath.Join(work, SnapshotName), "database")
	c := Contents{Format: Form, Made: time.Unix(0, 0).UTC(), Files: map[string]string{
		SnapshotName: hashOf("database"), "machine.yaml": hashOf("nodeName: a\n"), "pki/ca.key": hashOf("key"),
	}}
	var b bytes.Buffer
	if err := Write(&b, c, filepath.Join(work, SnapshotName), dir); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	got, err := Unpack(&b, out)
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

// TestDamagedArchivesAreRefused checks that Unpack rejects every change of an
// archive.
func TestDamagedArchivesAreRefused(t *testing.T) {
	c := Contents{Format: Form, Files: map[string]string{SnapshotName: hashOf("database"), "machine.yaml": hashOf("m")}}
	db, m := [2]string{SnapshotName, "database"}, [2]string{"machine.yaml", "m"}
	with := func(name, hash string) Contents {
		out := Contents{Format: Form, Files: map[string]string{SnapshotName: hashOf("database"), name: hash}}
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
		"NoSnapshot":    {packed(t, Contents{Format: Form, Files: map[string]string{"machine.yaml": hashOf("m")}}, m), "no snapshot"},
		"NextForm":      {packed(t, Contents{Format: "podium-backup/v9", Files: c.Files}, db, m), "podium-backup/v9"},
		"Outside":       {packed(t, with("../evil", hashOf("x")), db, [2]string{"../evil", "x"}), "do not list"},
		"Absolute":      {packed(t, with("/etc/passwd", hashOf("x")), db, [2]string{"/etc/passwd", "x"}), "do not list"},
		"Roundabout":    {packed(t, with("a/../b", hashOf("x")), db, [2]string{"a/../b", "x"}), "do not list"},
		"NotCompressed": {[]byte{0x1f, 0x8b, 0, 0}, "no backup by podium"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := Unpack(bytes.NewReader(row.data), filepath.Join(dir, "in"))
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
	if err := CheckSnapshot(bytes.NewReader(whole), int64(len(whole))); err != nil {
		t.Error(err)
	}
	for _, bad := range [][]byte{nil, whole[:20], whole[1:], append([]byte("x"), whole...), whole[:len(whole)-1]} {
		if err := CheckSnapshot(bytes.NewReader(bad), int64(len(bad))); err == nil {
			t.Errorf("%q was taken for a snapshot", bad)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	c := Contents{Format: Form, Files: map[string]string{SnapshotName: hashOf("d")}}
	f.Add(packed(f, c, [2]string{SnapshotName, "d"}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		_, _ = Unpack(bytes.NewReader(data), filepath.Join(dir, "in"))
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) > 1 || len(entries) == 1 && entries[0].Name() != "in" {
			t.Errorf("written outside: %v, %v", entries, err)
		}
	})
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tree returns the content of every file below dir.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		out[strings.TrimPrefix(path, dir)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
