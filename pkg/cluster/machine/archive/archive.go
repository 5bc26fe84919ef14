// Package archive reads and writes podium's backups: one file with a snapshot
// of etcd and the configuration directory, with the hash of each file.
package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// An archive is a tar file compressed with gzip. Its entries are: Contents,
// with the format and the hash of each file; the snapshot of the store; the
// files of the configuration directory under their own names.
const (
	contentsName = "contents.json"
	SnapshotName = "etcd.db"
	Form         = "podium-backup/v1"
	largestFile  = 64 << 20 // bytes, of a file in the configuration directory
	largestStore = 64 << 30
)

// Contents describes an archive.
type Contents struct {
	Format  string            `json:"format"`
	Made    time.Time         `json:"made"`
	Version string            `json:"version"` // of podium
	Cluster string            `json:"clusterName"`
	Node    string            `json:"nodeName"`
	Files   map[string]string `json:"files"` // name → SHA-256
}

// Write writes the archive that c describes to w: the snapshot from its file,
// the others from dir. It does not verify the hashes in c.
func Write(w io.Writer, c Contents, snapshot, dir string) error {
	packed := gzip.NewWriter(w)
	out := tar.NewWriter(packed)
	head, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := addFile(out, contentsName, c.Made, int64(len(head)), bytes.NewReader(head)); err != nil {
		return err
	}
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range c.Files {
			if name != SnapshotName && !yield(name) {
				return
			}
		}
	})
	for _, name := range append([]string{SnapshotName}, names...) {
		file := filepath.Join(dir, name)
		if name == SnapshotName {
			file = snapshot
		}
		if err := addPath(out, name, c.Made, file); err != nil {
			return err
		}
	}
	return errors.Join(out.Close(), packed.Close())
}

func addPath(out *tar.Writer, name string, made time.Time, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return addFile(out, name, made, info.Size(), f)
}

func addFile(out *tar.Writer, name string, made time.Time, size int64, content io.Reader) error {
	if err := out.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size, ModTime: made, Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err := io.CopyN(out, content, size)
	if err != nil {
		return fmt.Errorf("archive %s: %w", name, err)
	}
	return nil
}

// Unpack reads an archive into the empty directory dir. It returns an error
// unless the archive has exactly the files of its contents with their hashes;
// dir may then be partly filled. It writes nothing outside dir.
func Unpack(r io.Reader, dir string) (Contents, error) {
	packed, err := gzip.NewReader(r)
	if err != nil {
		return Contents{}, fmt.Errorf("it is no backup by podium: %w", err)
	}
	in := tar.NewReader(packed)
	c, err := readContents(in)
	if err != nil {
		return Contents{}, err
	}
	left := map[string]bool{}
	for name := range c.Files {
		left[name] = true
	}
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return c, fmt.Errorf("the backup is damaged: %w", err)
		}
		want, listed := c.Files[header.Name]
		if !listed || !left[header.Name] || !safeName(header.Name) || header.Typeflag != tar.TypeReg {
			return c, fmt.Errorf("the backup holds %q, which its contents do not list", header.Name)
		}
		delete(left, header.Name)
		got, err := unpackFile(in, header, filepath.Join(dir, header.Name))
		if err != nil {
			return c, err
		}
		if got != want {
			return c, fmt.Errorf("the backup is damaged: %s has another hash than when it was made", header.Name)
		}
	}
	if len(left) > 0 {
		return c, fmt.Errorf("the backup is damaged: %d files are missing", len(left))
	}
	return c, nil
}

// readContents reads the first entry of an archive and checks the format.
func readContents(in *tar.Reader) (c Contents, err error) {
	header, err := in.Next()
	if err != nil || header.Name != contentsName || header.Size > largestFile {
		return c, errors.Join(errors.New("it is no backup by podium, or its beginning is damaged"), err)
	}
	if err := json.NewDecoder(in).Decode(&c); err != nil {
		return c, fmt.Errorf("read the backup's contents: %w", err)
	}
	if c.Format != Form {
		return c, fmt.Errorf("the backup has the form %q; this podium reads %q", c.Format, Form)
	}
	if _, ok := c.Files[SnapshotName]; !ok {
		return c, errors.New("the backup has no snapshot of the store")
	}
	return c, nil
}

// safeName reports whether a path stays below its directory.
func safeName(name string) bool {
	return name == path.Clean(name) && filepath.IsLocal(name) && !strings.ContainsRune(name, '\\')
}

// unpackFile writes one entry to file, which must not exist, and returns its
// hash.
func unpackFile(in io.Reader, header *tar.Header, file string) (hash string, err error) {
	most := int64(largestFile)
	if header.Name == SnapshotName {
		most = largestStore
	}
	if header.Size > most {
		return "", fmt.Errorf("the backup's %s is too large to be one", header.Name)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, sum), in)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("unpack %s: %w", header.Name, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// CheckSnapshot verifies that a snapshot of etcd is complete: its last bytes
// are the SHA-256 hash of the preceding ones. size is in bytes.
func CheckSnapshot(r io.ReaderAt, size int64) error {
	if size <= sha256.Size {
		return errors.New("the snapshot is empty")
	}
	sum, want := sha256.New(), make([]byte, sha256.Size)
	if _, err := io.Copy(sum, io.NewSectionReader(r, 0, size-sha256.Size)); err != nil {
		return err
	}
	if _, err := r.ReadAt(want, size-sha256.Size); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return errors.New("the snapshot did not come whole: its hash is not that of its content")
	}
	return nil
}
