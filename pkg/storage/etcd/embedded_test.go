package etcd_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"podium/pkg/storage"
	"podium/pkg/storage/etcd"
)

func TestEmbeddedKeepsWhatWasAcknowledged(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	var revs []int64
	for i := range 3 {
		s := embed(t, dir)
		if now, err := s.Revision(ctx); err != nil || len(revs) > 0 && now != revs[len(revs)-1] {
			t.Fatalf("started at revision %d (%v) after %v", now, err, revs)
		}
		rev, err := s.Create(ctx, fmt.Sprintf("/registry/%d", i), []byte("v"))
		if err != nil {
			t.Fatal(err)
		}
		revs = append(revs, rev)
		page, err := s.List(ctx, "/registry/", storage.ListOptions{})
		if err != nil || len(page.KVs) != i+1 || page.Revision != rev {
			t.Fatalf("start %d: %d keys at %d, %v", i, len(page.KVs), page.Revision, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEmbeddedListensOnNothing(t *testing.T) {
	embed(t, t.TempDir())
	for _, port := range []string{"2379", "2380"} {
		if c, err := net.DialTimeout("tcp", "localhost:"+port, time.Second); err == nil {
			c.Close()
			t.Errorf("something listens on port %s", port)
		}
	}
}

func TestEmbeddedRefusesADirectoryInUse(t *testing.T) {
	t.Run("ByAnotherPodium", func(t *testing.T) {
		dir := t.TempDir()
		embed(t, dir)
		refused(t, dir, etcd.ErrLocked)
	})
	t.Run("ByEtcd", func(t *testing.T) {
		path, err := exec.LookPath("etcd")
		if err != nil {
			t.Skip("no etcd on the PATH: install Debian's etcd-server")
		}
		dir := t.TempDir()
		newServer(t, path, "--data-dir="+dir)
		refused(t, dir, etcd.ErrLocked)
	})
}

func TestEmbeddedRefusesADamagedDirectory(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, dir string){
		"DatabaseOverwritten": func(t *testing.T, dir string) {
			overwrite(t, filepath.Join(dir, "member/snap/db"), 0, 64<<10)
		},
		"DatabaseTruncated": func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, "member/snap/db"), 5000); err != nil {
				t.Fatal(err)
			}
		},
		"LogOverwritten": func(t *testing.T, dir string) {
			logs, err := filepath.Glob(filepath.Join(dir, "member/wal/*.wal"))
			if err != nil || len(logs) == 0 {
				t.Fatalf("%v, %v", logs, err)
			}
			overwrite(t, logs[0], 0, 4096)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "damaged") // etcd may still write to it after the failure
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			s := embed(t, dir)
			for i := range 20 {
				if _, err := s.Create(t.Context(), fmt.Sprintf("/registry/%d", i), []byte("v")); err != nil {
					t.Fatal(err)
				}
			}
			s.Close()
			damage(t, dir)
			refused(t, dir, etcd.ErrCorrupt)
		})
	}
}

func overwrite(t *testing.T, path string, at, n int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(bytes.Repeat([]byte{0xa5}, int(n)), at); err != nil {
		t.Fatal(err)
	}
}

// refused checks that Embed fails with an error of kind want that names the
// directory.
func refused(t *testing.T, dir string, want error) {
	t.Helper()
	began := time.Now()
	s, err := etcd.Embed(t.Context(), etcd.EmbeddedConfig{Dir: dir, NoSync: true, Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		s.Close()
	}
	if !errors.Is(err, want) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want %v and the directory's name", err, want)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
	t.Log(err)
}

func TestASnapshotHoldsEverything(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for name, s := range map[string]*etcd.Store{"embedded": embed(t, t.TempDir()), "external": open(t, ours(t).url)} {
		t.Run(name, func(t *testing.T) {
			for i := range 100 {
				if _, err := s.Create(ctx, fmt.Sprintf("/registry/%03d", i), []byte("v")); err != nil {
					t.Fatal(err)
				}
			}
			r, err := s.Snapshot(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			data, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			db, sum := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
			if want := sha256.Sum256(db); !bytes.Equal(sum, want[:]) {
				t.Error("the checksum behind the database is not its own")
			}
			if n := keysIn(t, db); n != 100 {
				t.Errorf("%d keys in the snapshot", n)
			}
		})
	}
	t.Run("given up", func(t *testing.T) {
		s := embed(t, t.TempDir())
		ctx, cancel := context.WithCancel(ctx)
		r, err := s.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		cancel()
		if _, err := io.Copy(io.Discard, r); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Run("closed", func(t *testing.T) {
		s := embed(t, t.TempDir())
		if _, err := s.Create(ctx, "/registry/large", make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		unread, err := s.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer unread.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := io.Copy(io.Discard, unread); err == nil || !strings.Contains(err.Error(), "the store is closed") {
			t.Errorf("a snapshot that was not read when the store was closed: %v", err)
		}
		if _, err := s.Snapshot(ctx); err == nil {
			t.Error("a snapshot of a closed store has begun")
		}
	})
}

// keysIn counts the values in etcd's database.
func keysIn(t *testing.T, data []byte) (n int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.View(func(tx *bolt.Tx) error {
		n = tx.Bucket([]byte("key")).Stats().KeyN
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}
