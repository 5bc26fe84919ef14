package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"podium/pkg/backoff"
)

// Options select what of a log to read. The zero value selects everything.
type Options struct {
	Tail       *int64    // only the last n lines; nil: all
	Since      time.Time // only records with this time or later
	Limit      *int64    // at most n bytes of output; nil: no limit
	Stream     string    // "stdout" or "stderr"; "" is both
	Timestamps bool      // prefix each line with its time

	// Follow makes Read wait for more, through rotations, until Running
	// returns false. Running is required with Follow.
	Follow  bool
	Running func(ctx context.Context) (bool, error)

	Log *slog.Logger
}

const (
	pollEvery  = 100 * time.Millisecond
	stateEvery = 5 // polls between two calls of Running
	chunk      = 32 << 10

	timeFormat = "2006-01-02T15:04:05.000000000Z07:00" // of Timestamps: fixed width
)

// Read writes the log at path to w. It calls flush when it has written all that
// there is so far. It returns at the end of the log, with Follow when the
// container has ended, or when ctx ends. The log must be below the directory dir:
// a pod that may write there cannot make Read follow a link out of dir.
func Read(ctx context.Context, dir, path string, o Options, w io.Writer, flush func()) error {
	name, err := filepath.Rel(dir, path)
	if err != nil || !filepath.IsLocal(name) {
		return fmt.Errorf("failed to open log file %q: it is not below %s", path, dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("failed to open log file %q: %w", path, err)
	}
	defer root.Close()
	f, err := Open(root, name)
	if err != nil {
		return fmt.Errorf("failed to open log file %q: %w", path, err)
	}
	r := &reader{Options: o, root: root, name: name, file: f, w: w, flush: flush}
	defer func() { r.file.Close() }()
	if o.Tail != nil {
		start, err := tailStart(f, *o.Tail)
		if err != nil {
			return err
		}
		if r.offset, err = f.Seek(start, io.SeekStart); err != nil {
			return err
		}
	}
	if o.Limit != nil {
		r.left = *o.Limit
	}
	err = r.run(ctx)
	flush()
	if errors.Is(err, errLimit) {
		return nil
	}
	return err
}

// Open opens a regular file for reading. Other files are an error; a pipe does
// not block.
func Open(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = errNoFile
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

var errNoFile = errors.New("it is not a regular file")

var errLimit = errors.New("the limit is reached")

// reader reads a log, file by file.
type reader struct {
	Options
	root   *os.Root
	name   string // of the log below root
	file   *os.File
	offset int64
	w      io.Writer
	flush  func()

	rest    []byte // an incomplete record
	left    int64  // bytes left of Limit
	middle  [2]bool
	skipped int // number of invalid records
}

// run reads the log to its end or, with Follow, until the container has ended.
func (r *reader) run(ctx context.Context) error {
	ended := false // the container has ended; this is the last pass
	for polls := 1; ; polls++ {
		if err := r.drain(ctx); err != nil {
			return err
		}
		rotated, err := r.next()
		if err != nil {
			return err
		}
		if rotated {
			continue
		}
		if !r.Follow || ended {
			return r.finish()
		}
		r.flush()
		if polls%stateEvery == 1 {
			running, err := r.Running(ctx)
			if err != nil {
				return err
			}
			if ended = !running; ended {
				continue
			}
		}
		if err := backoff.Sleep(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// drain reads the open file to its current end.
func (r *reader) drain(ctx context.Context) error {
	buf := make([]byte, chunk)
	for ctx.Err() == nil {
		n, err := r.file.Read(buf)
		r.offset += int64(n)
		if err := r.feed(buf[:n]); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// next opens the file that has replaced the open one. It first lets the open
// one be read to its end, because the runtime wrote to it until a moment ago.
func (r *reader) next() (rotated bool, err error) {
	if !r.Follow {
		return false, nil
	}
	there, err := r.root.Stat(r.name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // between the two steps of a rotation
	}
	if err != nil {
		return false, err
	}
	here, err := r.file.Stat()
	if err != nil {
		return false, err
	}
	if os.SameFile(here, there) {
		if there.Size() >= r.offset {
			return false, nil
		}
		r.offset, err = r.file.Seek(0, io.SeekStart) // truncated in place
		r.rest = nil
		return true, err
	}
	if here.Size() > r.offset {
		return true, nil
	}
	f, err := Open(r.root, r.name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := r.finish(); err != nil {
		f.Close()
		return false, err
	}
	r.file.Close()
	r.file, r.offset = f, 0
	return true, nil
}

// finish writes the last record even if its newline is missing.
func (r *reader) finish() error {
	if len(r.rest) == 0 {
		return nil
	}
	rest := r.rest
	r.rest = nil
	return r.record(rest)
}

// feed splits data into records and keeps an incomplete rest.
func (r *reader) feed(data []byte) error {
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			r.rest = append(r.rest, data...)
			return nil
		}
		record := data[:i+1]
		if len(r.rest) > 0 {
			record = append(r.rest, record...)
			r.rest = r.rest[:0]
		}
		data = data[i+1:]
		if err := r.record(record); err != nil {
			return err
		}
	}
}

// record writes one record as the options select. It skips invalid records, such
// as a line that a full disk cut off.
func (r *reader) record(record []byte) error {
	l, err := parse(record)
	if err != nil {
		if r.skipped++; r.skipped == 1 && r.Log != nil {
			r.Log.Warn("skip invalid line in a container log", "path", r.name, "err", err)
		}
		return nil
	}
	if l.time.Before(r.Since) || r.Stream != "" && r.Stream != l.stream {
		return nil
	}
	middle := &r.middle[0]
	if l.stream == "stderr" {
		middle = &r.middle[1]
	}
	if r.Timestamps && !*middle {
		if err := r.write(append(l.time.AppendFormat(nil, timeFormat), ' ')); err != nil {
			return err
		}
	}
	*middle = l.partial
	return r.write(l.text)
}

// write writes p, or the part of it that Limit permits. At the limit it returns
// errLimit.
func (r *reader) write(p []byte) error {
	if r.Limit == nil {
		_, err := r.w.Write(p)
		return err
	}
	full := int64(len(p)) >= r.left
	if full {
		p = p[:r.left]
	}
	r.left -= int64(len(p))
	if _, err := r.w.Write(p); err != nil {
		return err
	}
	if full {
		return errLimit
	}
	return nil
}
