package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"podium/pkg/cluster/files"
)

// stage unpacks the package to stagedDir, by the paths on the machine. It does
// nothing if the same package is unpacked there.
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
	if u.journal.Phase.Begun() {
		return fmt.Errorf("an upgrade to %s was interrupted: continue it first (podium upgrade apply, without --package)", u.journal.To)
	}
	return u.steps.Do(ctx, "package unpacked", plain(func(ctx context.Context) error {
		if err := errors.Join(os.RemoveAll(mark), os.RemoveAll(u.at(stagedDir))); err != nil {
			return err
		}
		if err := u.unpack(ctx, u.at(stagedDir)); err != nil {
			return err
		}
		_, err := files.Write(mark, []byte(id), 0o600)
		return err
	}))
}

// identify returns text that depends on the content of a package only, not on
// its name.
func identify(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return files.Hash(path)
	}
	names, err := files.List(path)
	if err != nil {
		return "", err
	}
	var all bytes.Buffer
	for _, name := range names {
		hash, err := files.Hash(filepath.Join(path, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintln(&all, hash, name)
	}
	return all.String(), nil
}

// isDeb reports whether dpkg has to register the package.
func (u *upgrading) isDeb() bool { return strings.HasSuffix(u.journal.Package, ".deb") }

// unpack copies the package's files below to: those of a Debian package, a
// directory tree, or a directory of binaries.
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
		to = filepath.Join(to, u.programs()) // a directory of binaries only
	}
	return files.CopyTree(u.Package, to)
}

// programs returns the directory in which the daemons are installed.
func (u *upgrading) programs() string {
	if _, err := os.Stat(u.at("/usr/local/bin/kubelet")); err == nil {
		return "/usr/local/bin"
	}
	return "/usr/bin"
}

// payload returns the files to install, by their paths on the machine, and
// their total size in bytes. It omits files in /etc that exist already: they
// belong to the operator.
func (u *upgrading) payload() (paths []string, size uint64, err error) {
	names, err := files.List(u.at(stagedDir))
	if err != nil {
		return nil, 0, err
	}
	for _, name := range names {
		path := "/" + name
		if isDocumentation(path) {
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

// isDocumentation reports whether a file is documentation or a shell completion. dpkg
// installs those when the package is registered, or omits them if the machine
// is configured so.
func isDocumentation(path string) bool {
	for _, prefix := range []string{"/usr/share/", "/usr/local/share/"} {
		if rest, ok := strings.CutPrefix(path, prefix); ok && !strings.HasPrefix(rest, "podium/") {
			return true
		}
	}
	return false
}

// configFiles returns the files beside the payload that the new version may
// write.
func (u *upgrading) configFiles() (paths []string, err error) {
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

// keep copies the present files to keptDir, and records in the journal which
// ones do not exist yet.
func (u *upgrading) keep(context.Context) error {
	paths, _, err := u.payload()
	if err != nil {
		return err
	}
	more, err := u.configFiles()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(u.at(keptDir)); err != nil {
		return err
	}
	u.journal.Added = nil
	var pairs []files.Pair
	for _, path := range append(paths, more...) {
		if _, err := os.Stat(u.at(path)); errors.Is(err, fs.ErrNotExist) {
			u.journal.Added = append(u.journal.Added, path)
			continue
		}
		pairs = append(pairs, files.Pair{From: u.at(path), To: u.at(keptDir, path)})
	}
	return files.Copy(pairs)
}

// swap installs the new files; each is replaced atomically.
func (u *upgrading) swap() error {
	paths, _, err := u.payload()
	if err != nil {
		return err
	}
	var pairs []files.Pair
	for _, path := range paths {
		pairs = append(pairs, files.Pair{From: u.at(stagedDir, path), To: u.at(path)})
	}
	return files.Copy(pairs)
}

// restore copies the files in keptDir back, and removes those that the upgrade
// added.
func (u *upgrading) restore() error {
	names, err := files.List(u.at(keptDir))
	if err != nil {
		return err
	}
	var pairs []files.Pair
	for _, name := range names {
		pairs = append(pairs, files.Pair{From: u.at(keptDir, name), To: u.at("/", name)})
	}
	errs := []error{files.Copy(pairs)}
	for _, path := range u.journal.Added {
		if err := os.Remove(u.at(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// installed reports whether the installed files are the new ones.
func (u *upgrading) installed() (bool, error) {
	paths, _, err := u.payload()
	if err != nil {
		return false, err
	}
	for _, path := range paths {
		same, err := files.Same(u.at(stagedDir, path), u.at(path))
		if err != nil || !same {
			return false, err
		}
	}
	return true, nil
}
