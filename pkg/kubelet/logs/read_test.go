package logs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const stamp = "2026-01-02T15:04:0%d.123456789Z %s %s %s\n"

func rec(second int, stream, tag, text string) string {
	return fmt.Sprintf(stamp, second, stream, tag, text)
}

func ptr[T any](v T) *T { return &v }

func read(t *testing.T, content string, o Options) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "0.log")
	os.WriteFile(path, []byte(content), 0o600)
	var out bytes.Buffer
	if err := Read(t.Context(), filepath.Dir(path), path, o, &out, func() {}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestRead(t *testing.T) {
	log := rec(1, "stdout", "F", "one") + rec(2, "stdout", "P", "tw") + rec(2, "stderr", "F", "err") + rec(3, "stdout", "F", "o") + rec(4, "stdout", "F", "")
	base := time.Date(2026, 1, 2, 15, 4, 3, 0, time.UTC)
	for name, tc := range map[string]struct {
		reason string
		log    string
		o      Options
		want   string
	}{
		"All":        {"partial records make one line", log, Options{}, "one\ntwerr\no\n\n"},
		"Stdout":     {"one stream alone", log, Options{Stream: "stdout"}, "one\ntwo\n\n"},
		"Stderr":     {"the other", log, Options{Stream: "stderr"}, "err\n"},
		"Timestamps": {"once a line, not once a record", log, Options{Timestamps: true, Stream: "stdout"}, "2026-01-02T15:04:01.123456789Z one\n2026-01-02T15:04:02.123456789Z two\n2026-01-02T15:04:04.123456789Z \n"},
		"Since":      {"what is older is left out", log, Options{Since: base}, "o\n\n"},
		"Limit":      {"to the byte", log, Options{Limit: ptr(int64(5))}, "one\nt"},
		"Tail0":      {"nothing but what comes", log, Options{Tail: ptr(int64(0))}, ""},
		"Tail1":      {"an empty line is a line", log, Options{Tail: ptr(int64(1))}, "\n"},
		"Tail2":      {"stderr's line ends in the middle of the other", log, Options{Tail: ptr(int64(2))}, "o\n\n"},
		"TailMany":   {"more than there is", log, Options{Tail: ptr(int64(99))}, "one\ntwerr\no\n\n"},
		"TailParts":  {"a line in pieces is one line", rec(1, "stdout", "F", "x") + rec(1, "stdout", "P", "a") + rec(1, "stdout", "P", "b") + rec(1, "stdout", "F", "c"), Options{Tail: ptr(int64(1))}, "abc\n"},
		"TailOpen":   {"an unfinished line counts", rec(1, "stdout", "F", "x") + rec(1, "stdout", "P", "a") + rec(1, "stdout", "P", "b"), Options{Tail: ptr(int64(1))}, "ab"},
		"Torn":       {"a last record without newline is shown, junk is not", rec(1, "stdout", "F", "x") + "junk\n" + strings.TrimSuffix(rec(2, "stdout", "F", "y"), "\n"), Options{}, "x\ny"},
		"Empty":      {"a container that says nothing", "", Options{Tail: ptr(int64(3))}, ""},
		"MoreTags":   {"only the first tag is known", rec(1, "stdout", "P:x:y", "a") + rec(1, "stdout", "F:z", "b"), Options{}, "ab\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := read(t, tc.log, tc.o); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestTailOverManyBlocks(t *testing.T) {
	var log strings.Builder
	var lines []string
	for i := range 5000 {
		text := fmt.Sprintf("line %d %s", i, strings.Repeat("x", i%97))
		if i == 4000 {
			text = strings.Repeat("long", 20000)
		}
		lines = append(lines, text+"\n")
		log.WriteString(rec(1, "stdout", "F", text))
	}
	for _, n := range []int64{1, 2, 500, 999, 1000, 1001, 4999, 5000, 6000} {
		want := strings.Join(lines[max(0, len(lines)-int(n)):], "")
		if got := read(t, log.String(), Options{Tail: &n}); got != want {
			t.Errorf("the last %d lines: got %d bytes, want %d", n, len(got), len(want))
		}
	}
}

func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	if err := Read(t.Context(), dir, filepath.Join(dir, "none"), Options{}, &bytes.Buffer{}, func() {}); err == nil {
		t.Error("a log that is not there was read")
	}
}

// The reader follows a log through a rotation to the container's end.
func TestFollowThroughRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "0.log")
		write := func(s string) {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				t.Error(err)
				return
			}
			f.WriteString(s)
			f.Close()
		}
		write(rec(1, "stdout", "F", "before"))
		var running atomic.Bool
		running.Store(true)
		out := &output{}
		done := make(chan error, 1)
		go func() {
			done <- Read(t.Context(), filepath.Dir(path), path, Options{Follow: true, Running: func(context.Context) (bool, error) { return running.Load(), nil }}, out, out.flush)
		}()
		step := func(want string) {
			t.Helper()
			time.Sleep(2 * pollEvery)
			synctest.Wait()
			if out.flushed() != want {
				t.Fatalf("got %q, want %q", out.flushed(), want)
			}
		}
		step("before\n")
		half := rec(2, "stdout", "F", "in two writes")
		write(half[:20])
		step("before\n")
		write(half[20:])
		step("before\nin two writes\n")

		// The runtime keeps the old file open and writes to it after the rename.
		old, _ := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
		os.Rename(path, path+".1")
		step("before\nin two writes\n")
		old.WriteString(rec(3, "stdout", "F", "last of the old"))
		old.Close()
		write(rec(3, "stdout", "F", "first of the new"))
		step("before\nin two writes\nlast of the old\nfirst of the new\n")

		os.Truncate(path, 0)
		step("before\nin two writes\nlast of the old\nfirst of the new\n")
		write(rec(4, "stdout", "F", "x"))
		step("before\nin two writes\nlast of the old\nfirst of the new\nx\n")

		running.Store(false)
		write(rec(5, "stdout", "F", "bye"))
		if err := <-done; err != nil {
			t.Error(err)
		}
		if !strings.HasSuffix(out.flushed(), "x\nbye\n") {
			t.Errorf("the last words are missing: %q", out.flushed())
		}
	})
}

// output holds what was flushed to the client.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	done int
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done = o.text.Len()
}

func (o *output) flushed() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()[:o.done]
}

func TestFollowEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "0.log")
		os.WriteFile(path, nil, 0o600)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err := Read(ctx, filepath.Dir(path), path, Options{Follow: true, Running: func(context.Context) (bool, error) { return true, nil }}, &bytes.Buffer{}, func() {})
		if err != context.DeadlineExceeded {
			t.Error(err)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(rec(1, "stdout", "F", "x")))
	f.Add([]byte("2016-10-06T00:17:09.669794202Z stderr P:a x"))
	f.Add([]byte("2016-10-06T00:17:09Z stdout F\n"))
	f.Fuzz(func(t *testing.T, record []byte) {
		l, err := parse(record)
		if err == nil && (l.stream != "stdout" && l.stream != "stderr" || !bytes.HasSuffix(record, l.text) && !l.partial) {
			t.Errorf("%q became %+v", record, l)
		}
	})
}

func FuzzTail(f *testing.F) {
	f.Add([]byte(rec(1, "stdout", "F", "x")+rec(1, "stdout", "P", "y")+"junk\n\n"), int64(1))
	f.Fuzz(func(t *testing.T, content []byte, n int64) {
		path := filepath.Join(t.TempDir(), "log")
		os.WriteFile(path, content, 0o600)
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		start, err := tailStart(file, n)
		if err != nil || start < 0 || start > int64(len(content)) {
			t.Fatalf("the last %d lines of %q start at %d, %v", n, content, start, err)
		}
		if start > 0 && start < int64(len(content)) && content[start-1] != '\n' {
			t.Errorf("they start in the middle of a record: %q", content[start:])
		}
	})
}

func BenchmarkRead(b *testing.B) {
	path := filepath.Join(b.TempDir(), "log")
	os.WriteFile(path, []byte(strings.Repeat(rec(1, "stdout", "F", strings.Repeat("x", 100)), 10000)), 0o600)
	for b.Loop() {
		var out bytes.Buffer
		if err := Read(b.Context(), filepath.Dir(path), path, Options{}, &out, func() {}); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(out.Len()))
	}
}
