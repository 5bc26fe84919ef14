package cli

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
)

// hostileArchive returns an archive as a malicious container might send it:
// names with "..", links that leave the directory, and files behind those
// links.
func hostileArchive(r *rand.Rand, outside string) []byte {
	parts := []string{"src", "src", "..", "..", ".", "", "a", "l", "m", outside, "/", "...", `..\..`, "evil\x00", strings.Repeat("../", 20)}
	name := func() string {
		names := []string{"src"}
		for range r.IntN(6) {
			names = append(names, parts[r.IntN(len(parts))])
		}
		if r.IntN(4) == 0 {
			names = names[1:]
		}
		return strings.ReplaceAll(strings.Join(names, "/"), "\x00", "%00")
	}
	kinds := []byte{tar.TypeReg, tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeFifo, tar.TypeChar}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for range 1 + r.IntN(6) {
		h := tar.Header{Name: name(), Typeflag: kinds[r.IntN(len(kinds))], Mode: 0o6777}
		switch h.Typeflag {
		case tar.TypeReg:
			h.Size = 4
		case tar.TypeSymlink, tar.TypeLink:
			h.Linkname = name()
		}
		if w.WriteHeader(&h) != nil {
			continue // cannot be encoded as tar
		}
		if h.Size > 0 {
			fmt.Fprint(w, "evil")
		}
	}
	w.Close()
	return out.Bytes()
}

// Whatever archive a container sends, cp writes only below the destination, and
// creates neither links nor setuid or setgid files.
func TestCopyFromAHostileContainer(t *testing.T) {
	written := 0
	for seed := range uint64(500) {
		top := t.TempDir()
		dst, outside := filepath.Join(top, "here", "dst"), filepath.Join(top, "outside")
		for _, err := range []error{os.MkdirAll(filepath.Dir(dst), 0o755), os.Mkdir(outside, 0o755), os.Symlink(outside, filepath.Join(top, "here", "l"))} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if seed%2 == 0 { // the destination exists and contains a link of its owner
			if err := os.Mkdir(dst, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(outside, filepath.Join(dst, "m")); err != nil {
				t.Fatal(err)
			}
		}
		archive := hostileArchive(rand.New(rand.NewPCG(seed, 0)), outside)
		_ = unpackTree(bytes.NewReader(archive), "src", dst, func(string) {}) // an error is fine
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			switch {
			case info.Mode().IsRegular():
				written++
				if path != dst && !strings.HasPrefix(path, dst+"/") {
					t.Errorf("archive %d wrote %s", seed, path)
				}
				if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
					t.Errorf("archive %d made %s with %v", seed, path, info.Mode())
				}
			case !info.IsDir() && path != filepath.Join(top, "here", "l") && path != filepath.Join(dst, "m"):
				t.Errorf("archive %d made %s, %v", seed, path, info.Mode())
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if written == 0 {
		t.Error("no archive had a file that was written: the test tries nothing")
	}
}

// FuzzUnpackTree checks that no input creates a file outside of the
// destination.
func FuzzUnpackTree(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(hostileArchive(rand.New(rand.NewPCG(seed, 1)), "/outside"))
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		top := t.TempDir()
		_ = unpackTree(bytes.NewReader(archive), "src", filepath.Join(top, "dst"), func(string) {})
		entries, err := os.ReadDir(top)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != "dst" {
				t.Errorf("%s was made", e.Name())
			}
		}
	})
}

// TestCopyGoesOn cuts the connection to the container twice.
func TestCopyGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		content := strings.Repeat("0123456789", 100)
		for retries, want := range map[int]bool{0: false, 1: false, 2: true, -1: true} {
			var notes, got strings.Builder
			o := &cpOptions{Factory: &Factory{IO: IO{Err: &notes}}, Retries: retries}
			calls := 0
			err := o.pack(t.Context(), "/srv/x", &got, func(out io.Writer, command ...string) error {
				if calls++; calls > 1 {
					from, err := strconv.Atoi(command[len(command)-1])
					if err != nil || command[0] != "sh" {
						t.Fatal(command)
					}
					if _, err := io.WriteString(out, content[from-1:min(len(content), 300*calls)]); err != nil {
						return err
					}
				} else if _, err := io.WriteString(out, content[:250]); err != nil {
					return err
				}
				if calls < 3 {
					return io.ErrUnexpectedEOF
				}
				_, err := io.WriteString(out, content[900:])
				return err
			})
			if done := err == nil && got.String() == content; done != want || strings.Count(notes.String(), "Resuming copy") != min(calls-1, 2) {
				t.Errorf("%d retries: %v, %d bytes after %d calls\n%s", retries, err, got.Len(), calls, &notes)
			}
		}
	})
}
