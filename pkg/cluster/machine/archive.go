package machine

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
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// An archive is a compressed tar: first contents, which says what it is and
// the hash of each file; then the store's snapshot; then the files of
// configDir under their own names.
const (
	contentsName = "contents.json"
	snapshotName = "etcd.db"
	archiveForm  = "podium-backup/v1"
	largestFile  = 64 << 20 // of configDir
	largestStore = 64 << 30
)

// contents describe an archive.
type contents struct {
	Format  string            `json:"format"`
	Made    time.Time         `json:"made"`
	Version string            `json:"version"` // of podium
	Cluster string            `json:"clusterName"`
	Node    string            `json:"nodeName"`
	Files   map[string]string `json:"files"` // name → SHA-256
}

// filesOf are the regular files below a folder, by their path from there.
func filesOf(dir string) (names []string, err error) {
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, p)
		names = append(names, name)
		return err
	})
	return names, err
}

// writeArchive writes what c describes: the snapshot from its file, the others
// from dir.
func writeArchive(w io.Writer, c contents, snapshot, dir string) error {
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
			if name != snapshotName && !yield(name) {
				return
			}
		}
	})
	for _, name := range append([]string{snapshotName}, names...) {
		file := filepath.Join(dir, name)
		if name == snapshotName {
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

// unpack reads an archive into an empty folder: all of it, each file with the
// hash that the contents say, or an error. Nothing is written outside dir.
func unpack(r io.Reader, dir string) (contents, error) {
	packed, err := gzip.NewReader(r)
	if err != nil {
		return contents{}, fmt.Errorf("it is no backup by podium: %w", err)
	}
	in := tar.NewReader(packed)
	c, err := readContents(in)
	if err != nil {
		return contents{}, err
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

func readContents(in *tar.Reader) (c contents, err error) {
	header, err := in.Next()
	if err != nil || header.Name != contentsName || header.Size > largestFile {
		return c, errors.Join(errors.New("it is no backup by podium, or its beginning is damaged"), err)
	}
	if err := json.NewDecoder(in).Decode(&c); err != nil {
		return c, fmt.Errorf("read the backup's contents: %w", err)
	}
	if c.Format != archiveForm {
		return c, fmt.Errorf("the backup has the form %q; this podium reads %q", c.Format, archiveForm)
	}
	if _, ok := c.Files[snapshotName]; !ok {
		return c, errors.New("the backup has no snapshot of the store")
	}
	return c, nil
}

// safeName is a path that stays below its folder.
func safeName(name string) bool {
	return name == path.Clean(name) && filepath.IsLocal(name) && !strings.ContainsRune(name, '\\')
}

func unpackFile(in io.Reader, header *tar.Header, file string) (hash string, err error) {
	most := int64(largestFile)
	if header.Name == snapshotName {
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

func hashFile(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("read %s: %w", file, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
