package volumes

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func set(pairs ...string) payload {
	p := payload{}
	for i := 0; i < len(pairs); i += 2 {
		p[pairs[i]] = file{data: []byte(pairs[i+1]), mode: 0o644}
	}
	return p
}

func newWriter(dir string) *writer {
	return &writer{dir: dir, now: func() time.Time { return time.Unix(0, 0) }}
}

// reads checks that a reader sees all of files with their contents.
func reads(dir string, files payload) error {
	for p, f := range files {
		data, err := os.ReadFile(filepath.Join(dir, p))
		if err != nil || string(data) != string(f.data) {
			return fmt.Errorf("%s reads %q, %v; want %q", p, data, err, f.data)
		}
	}
	return nil
}

// present returns the set that a reader sees through ..data.
func present(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	real, err := filepath.EvalSymlinks(filepath.Join(dir, dataLink))
	if err != nil {
		return nil
	}
	err = filepath.WalkDir(real, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(real, p)
		data, err := os.ReadFile(p)
		out[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func plain(files payload) map[string]string {
	out := map[string]string{}
	for p, f := range files {
		out[p] = string(f.data)
	}
	return out
}

// A crash before any step leaves the complete old or new set; the next write finishes
// the work and leaves nothing behind.
func TestCrashBetweenAnyTwoSteps(t *testing.T) {
	older := set("a", "1", "b", "1", "dir/x", "1", "gone", "1")
	newer := set("a", "2", "b", "2", "dir/x", "2", "dir/sub/y", "2", "new", "2")
	crash := errors.New("crash")
	for at := 0; ; at++ {
		dir := t.TempDir()
		w := newWriter(dir)
		if err := w.write(older); err != nil {
			t.Fatal(err)
		}
		n, where := 0, ""
		w.step = func(name string) error {
			if n == at {
				where = name
				return crash
			}
			n++
			return nil
		}
		err := w.write(newer)
		if err == nil {
			if at < 10 {
				t.Fatalf("only %d steps were seen", at)
			}
			return
		}
		if !errors.Is(err, crash) {
			t.Fatal(err)
		}
		if now := present(t, dir); !maps.Equal(now, plain(older)) && !maps.Equal(now, plain(newer)) {
			t.Errorf("crash before %q: the set is %v", where, now)
		}
		w.step = nil
		if err := w.write(newer); err != nil {
			t.Fatalf("after a crash before %q: %v", where, err)
		}
		if err := reads(dir, newer); err != nil {
			t.Errorf("after a crash before %q: %v", where, err)
		}
		var names []string
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if !isSet(e.Name()) {
				names = append(names, e.Name())
			}
		}
		if want := []string{dataLink, "a", "b", "dir", "new"}; !slices.Equal(names, want) || len(entries) != len(want)+1 {
			t.Errorf("after a crash before %q: %v", where, entries)
		}
	}
}

// Readers that go through ..data during changes never see a mixture of sets.
func TestReadersSeeWholeSets(t *testing.T) {
	dir := t.TempDir()
	w := newWriter(dir)
	if err := w.write(set("a", "0", "b", "0")); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			root, err := os.OpenRoot(filepath.Join(dir, dataLink))
			if err != nil {
				continue // the set was removed after the link was read
			}
			a, errA := root.ReadFile("a")
			b, errB := root.ReadFile("b")
			root.Close()
			if errA == nil && errB == nil && string(a) != string(b) {
				done <- fmt.Errorf("a is %s, b is %s", a, b)
				return
			}
		}
	}()
	for i := range 200 {
		if err := w.write(set("a", fmt.Sprint(i), "b", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestASubPathDirectoryGivesWayToItsKey(t *testing.T) {
	dir := t.TempDir()
	w := newWriter(dir)
	if err := w.write(payload{}); err != nil {
		t.Fatal(err)
	}
	os.Mkdir(filepath.Join(dir, "key"), 0o755)
	if err := w.write(set("key", "v")); err != nil {
		t.Fatal(err)
	}
	if err := reads(dir, set("key", "v")); err != nil {
		t.Error(err)
	}
}

func FuzzPaths(f *testing.F) {
	for _, s := range []string{"a", "a/b", "../x", "..x", "/abs", "a/../../x", "a//b", "./a", "..data", "..data/x", "a/..", strings.Repeat("n", 300), "x\x00y", ""} {
		f.Add(s, "b/c")
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		outer := t.TempDir()
		dir := filepath.Join(outer, "volume")
		os.Mkdir(dir, 0o755)
		files := set(one, "1", two, "2")
		err := newWriter(dir).write(files)
		if entries, _ := os.ReadDir(outer); len(entries) != 1 {
			t.Fatalf("%q, %q: written outside: %v", one, two, entries)
		}
		if err != nil {
			return
		}
		for p := range files {
			if path.Clean("/"+p) != "/"+p {
				t.Errorf("%q was accepted", p)
			}
		}
		if err := reads(dir, files); err != nil {
			t.Error(err)
		}
	})
}

func FuzzMountPoints(f *testing.F) {
	f.Add("36 35 98:0 / /pods/a rw - tmpfs tmpfs rw\n37 36 0:1 / /pods/a/b\\040c rw - x x rw\n", "/pods/a")
	f.Add("1 2 3:4 / \\057\\777 x", "/")
	f.Fuzz(func(t *testing.T, table, dir string) {
		points, err := mountPoints(strings.NewReader(table), dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range points {
			if p != dir && !strings.HasPrefix(p, dir+"/") {
				t.Errorf("%q is not under %q", p, dir)
			}
		}
	})
}

func TestMountPoints(t *testing.T) {
	table := `1 0 0:1 / /pods/a rw - tmpfs tmpfs rw
2 1 0:2 / /pods/a/v\0401 rw - tmpfs tmpfs rw
3 1 0:3 / /pods/ab rw - tmpfs tmpfs rw
4 2 0:4 / /pods/a/v\0401/deep rw - tmpfs tmpfs rw
5 1 0:5 / /pods/a rw - tmpfs tmpfs rw
`
	got, err := mountPoints(strings.NewReader(table), "/pods/a")
	want := []string{"/pods/a/v 1/deep", "/pods/a/v 1", "/pods/a", "/pods/a"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
}
