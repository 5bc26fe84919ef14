package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// stage puts the package's files below stagedDir, by their paths on the
// machine. What is there already, of the same package, stays.
func (u *upgrading) stage(ctx context.Context) error {
	if u.Package == "" {
		return nil
	}
	id, err := identify(u.Package)
	if err != nil {
		return err
	}
	mark := u.at(upgradeDir, "new.id")
	if have, err := os.ReadFile(mark); err == nil && string(have) == id {
		return nil
	}
	if u.journal.Phase.begun() {
		return fmt.Errorf("an upgrade to %s was interrupted: first go on with it (podium upgrade apply, without --package)", u.journal.To)
	}
	return u.steps.Do(ctx, "package unpacked", plain(func(ctx context.Context) error {
		if err := errors.Join(os.RemoveAll(mark), os.RemoveAll(u.at(stagedDir))); err != nil {
			return err
		}
		if err := u.unpack(ctx, u.at(stagedDir)); err != nil {
			return err
		}
		_, err := writeFile(mark, []byte(id), 0o600)
		return err
	}))
}

// identify tells one package from another, whatever they are called.
func identify(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return hashFile(path)
	}
	names, err := filesOf(path)
	if err != nil {
		return "", err
	}
	var all bytes.Buffer
	for _, name := range names {
		hash, err := hashFile(filepath.Join(path, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintln(&all, hash, name)
	}
	return all.String(), nil
}

// isDeb says whether the package manager is to know of it.
func (u *upgrading) isDeb() bool { return strings.HasSuffix(u.journal.Package, ".deb") }

func (u *upgrading) unpack(ctx context.Context, to string) error {
	info, err := os.Stat(u.Package)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		if !strings.HasSuffix(u.Package, ".deb") {
			return fmt.Errorf("%s is neither a Debian package (NAME.deb) nor a folder", u.Package)
		}
		_, err := u.host.Run(ctx, "dpkg-deb", "-x", u.Package, to)
		return err
	}
	if _, err := os.Stat(filepath.Join(u.Package, "podium")); err == nil {
		to = filepath.Join(to, u.programs()) // nothing but binaries
	}
	return copyTree(u.Package, to)
}

// programs is the folder in which the daemons are installed.
func (u *upgrading) programs() string {
	if _, err := os.Stat(u.at("/usr/local/bin/kubelet")); err == nil {
		return "/usr/local/bin"
	}
	return "/usr/bin"
}

// payload are the files to be put in place, by their paths on the machine.
// Configuration that is there is the operator's.
func (u *upgrading) payload() (paths []string, size uint64, err error) {
	names, err := filesOf(u.at(stagedDir))
	if err != nil {
		return nil, 0, err
	}
	for _, name := range names {
		path := "/" + name
		if forPeople(path) {
			continue
		}
		if _, err := os.Lstat(u.at(path)); err == nil && strings.HasPrefix(path, "/etc/") && !slices.Contains(u.journal.Added, path) {
			continue
		}
		info, err := os.Stat(u.at(stagedDir, path))
		if err != nil {
			return nil, 0, err
		}
		paths, size = append(paths, path), size+uint64(info.Size())
	}
	if len(paths) == 0 {
		return nil, 0, fmt.Errorf("%s holds no files of Podium", u.journal.Package)
	}
	return paths, size, nil
}

// forPeople: manuals and completions come when the package is registered, or not
// where the machine's package manager leaves such files out.
func forPeople(path string) bool {
	for _, prefix := range []string{"/usr/share/", "/usr/local/share/"} {
		if rest, ok := strings.CutPrefix(path, prefix); ok && !strings.HasPrefix(rest, "podium/") {
			return true
		}
	}
	return false
}

// changeable are the files beside the payload that the new version may write.
func (u *upgrading) changeable() (paths []string, err error) {
	entries, err := os.ReadDir(u.at(configDir))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext == ".yaml" || ext == ".toml" {
			paths = append(paths, filepath.Join(configDir, e.Name()))
		}
	}
	for _, unit := range u.units() {
		if path := filepath.Join(configDir, unit.file); !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return append(paths, containerdDropIn), nil
}

// keep copies what is there, and notes what is not.
func (u *upgrading) keep(context.Context) error {
	paths, _, err := u.payload()
	if err != nil {
		return err
	}
	more, err := u.changeable()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(u.at(keptDir)); err != nil {
		return err
	}
	u.journal.Added = nil
	var files []copying
	for _, path := range append(paths, more...) {
		if _, err := os.Stat(u.at(path)); errors.Is(err, fs.ErrNotExist) {
			u.journal.Added = append(u.journal.Added, path)
			continue
		}
		files = append(files, copying{u.at(path), u.at(keptDir, path)})
	}
	return copyFiles(files)
}

// swap puts the new files in place, each at once.
func (u *upgrading) swap() error {
	paths, _, err := u.payload()
	if err != nil {
		return err
	}
	var files []copying
	for _, path := range paths {
		files = append(files, copying{u.at(stagedDir, path), u.at(path)})
	}
	return copyFiles(files)
}

// restore puts back what keep has kept.
func (u *upgrading) restore() error {
	names, err := filesOf(u.at(keptDir))
	if err != nil {
		return err
	}
	var files []copying
	for _, name := range names {
		files = append(files, copying{u.at(keptDir, name), u.at("/", name)})
	}
	errs := []error{copyFiles(files)}
	for _, path := range u.journal.Added {
		if err := os.Remove(u.at(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// inPlace says whether the new files are those that are installed.
func (u *upgrading) inPlace() (bool, error) {
	paths, _, err := u.payload()
	if err != nil {
		return false, err
	}
	for _, path := range paths {
		same, err := sameContent(u.at(stagedDir, path), u.at(path))
		if err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

func copyTree(from, to string) error {
	names, err := filesOf(from)
	if err != nil {
		return err
	}
	var files []copying
	for _, name := range names {
		files = append(files, copying{filepath.Join(from, name), filepath.Join(to, name)})
	}
	return copyFiles(files)
}

// copying makes to what from is.
type copying struct{ from, to string }

// beside is where a file is written before it comes to its place.
func (c copying) beside() string { return c.to + ".podium-new" }

// copyFiles puts each in its place in one step; a program that runs goes on
// with what it began with. Files that are the same stay. All are written before
// the first is waited for: the disk takes them together.
func copyFiles(files []copying) error {
	var written []copying
	for _, c := range files {
		same, err := sameContent(c.from, c.to)
		if err == nil && same {
			continue
		}
		written = append(written, c)
		if err == nil {
			err = c.write()
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", c.to, errors.Join(err, remove(written)))
		}
	}
	for i, c := range written {
		if err := c.place(); err != nil {
			return fmt.Errorf("write %s: %w", c.to, errors.Join(err, remove(written[i:])))
		}
	}
	return nil
}

func (c copying) write() error {
	in, err := os.Open(c.from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.to), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(c.beside(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(info.Mode().Perm()), out.Close())
}

// place waits until the file is on the disk, and gives it its name.
func (c copying) place() error {
	f, err := os.Open(c.beside())
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(c.beside(), c.to)
}

// remove takes away what did not come to its place.
func remove(files []copying) error {
	var errs []error
	for _, c := range files {
		if err := os.Remove(c.beside()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// sameContent compares two files; one that is not there is another one. from
// must be there.
func sameContent(from, to string) (bool, error) {
	a, err := os.Open(from)
	if err != nil {
		return false, err
	}
	defer a.Close()
	b, err := os.Open(to)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer b.Close()
	one, errOne := a.Stat()
	other, errOther := b.Stat()
	if err := errors.Join(errOne, errOther); err != nil || one.Size() != other.Size() || one.Mode() != other.Mode() {
		return false, err
	}
	return sameBytes(a, b)
}

func sameBytes(a, b io.Reader) (bool, error) {
	const piece = 1 << 20
	x, y := make([]byte, piece), make([]byte, piece)
	for {
		n, errA := io.ReadFull(a, x)
		m, errB := io.ReadFull(b, y)
		if n != m || !bytes.Equal(x[:n], y[:m]) {
			return false, nil
		}
		if errors.Is(errA, io.EOF) || errors.Is(errA, io.ErrUnexpectedEOF) {
			return true, nil
		}
		if err := errors.Join(errA, errB); err != nil {
			return false, err
		}
	}
}
