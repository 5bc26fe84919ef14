package etcd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"podium/pkg/storage"
)

// EmbeddedConfig configures an etcd member inside this process. Dir and Log are
// required.
type EmbeddedConfig struct {
	Dir        string       // data directory; created if missing
	QuotaBytes int64        // default 8 GiB
	NoSync     bool         // do not fsync: for tests, a crash of the machine loses data
	Log        *slog.Logger // etcd's own messages are logged one level lower
}

const (
	defaultQuota = 8 << 30
	startTimeout = 60 * time.Second // a large write-ahead log takes long to read
)

// ErrLocked is returned if another process uses the data directory.
var ErrLocked = errors.New("used by another process")

// ErrCorrupt is returned if the data directory cannot be read.
var ErrCorrupt = errors.New("the data directory is damaged")

// Embed starts the member and blocks until it serves, ctx ends, or 60 s have
// passed. The member does not listen on the network: only this process uses it, by
// function calls. The caller must call Close.
func Embed(ctx context.Context, cfg EmbeddedConfig) (*Store, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	unlock, err := lock(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if err := probe(cfg.Dir); err != nil {
		return nil, errors.Join(err, unlock())
	}
	member, err := start(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	client, copies := v3client.New(member.Server), newSnapshots(member.Server.Backend)
	s := &Store{
		client:       client,
		log:          cfg.Log,
		singleMember: true,
		read:         []clientv3.OpOption{clientv3.WithSerializable()},
		marks:        true,
		snapshot:     copies.open,
		closers: []func() error{
			copies.close,
			client.Watcher.Close,
			func() error { client.Close(); return nil }, // its only error is that it is closed
			func() error { member.Close(); return nil },
			unlock,
		},
	}
	if _, err := s.Get(ctx, "revision"); err != nil && !errors.Is(err, storage.ErrNotFound) {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// start starts etcd and blocks until the member is the leader of its cluster. It
// turns a panic of etcd into ErrCorrupt.
func start(ctx context.Context, cfg EmbeddedConfig) (member *embed.Etcd, err error) {
	logger := newLogger(cfg.Log)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("start etcd on %s: %w: %v; restore a backup into an empty directory", cfg.Dir, ErrCorrupt, p)
		}
		logger.start()
	}()
	member, err = embed.StartEtcd(memberConfig(cfg, logger))
	if err != nil {
		return nil, fmt.Errorf("start etcd on %s: %w", cfg.Dir, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-member.Server.ReadyNotify():
		return member, nil
	case err = <-member.Err():
	case <-member.Server.StopNotify():
		err = errors.New("it stopped")
	case <-ctx.Done():
		err = fmt.Errorf("it does not become its own leader; if the directory is from a member of a larger cluster, or from a snapshot, restore it with etcdutl first: %w", ctx.Err())
	}
	member.Close()
	return nil, fmt.Errorf("start etcd on %s: %w", cfg.Dir, err)
}

func memberConfig(cfg EmbeddedConfig, logger *logger) *embed.Config {
	const name = "podium"
	// etcd requires an advertised address for each member. The member does not
	// listen on it.
	nowhere := url.URL{Scheme: "http", Host: "localhost:2380"}

	c := embed.NewConfig()
	c.Name = name
	c.Dir = cfg.Dir
	c.ListenPeerUrls, c.ListenClientUrls = nil, nil
	c.AdvertisePeerUrls, c.AdvertiseClientUrls = []url.URL{nowhere}, []url.URL{nowhere}
	c.InitialCluster = c.InitialClusterFromName(name)
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger.zap())
	c.QuotaBackendBytes = cfg.QuotaBytes
	if c.QuotaBackendBytes == 0 {
		c.QuotaBackendBytes = defaultQuota
	}
	c.UnsafeNoFsync = cfg.NoSync
	c.AutoCompactionRetention = "0" // storage.Compactor compacts
	// A single member can elect itself without waiting for others.
	c.TickMs, c.ElectionMs = 50, 250
	// The in-memory raft log serves followers that lag behind; this cluster has
	// only one member.
	c.SnapshotCount, c.SnapshotCatchUpEntries = 2000, 1
	return c
}

// lock takes an exclusive lock on the data directory, which works before the
// database exists. It returns ErrLocked without blocking if another process holds
// the lock.
func lock(dir string) (unlock func() error, err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the data directory: %w", err)
	}
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		d.Close()
		return nil, locked(dir)
	}
	return d.Close, nil
}

func locked(dir string) error {
	return fmt.Errorf("data directory %s: %w; stop it first, or choose another directory", dir, ErrLocked)
}

// probe opens the database before etcd does, because etcd blocks forever on a
// locked database and panics in another goroutine on a damaged one.
func probe(dir string) error {
	path := filepath.Join(dir, "member", "snap", "db")
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: 100 * time.Millisecond})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, bolterrors.ErrTimeout):
		return locked(dir)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("open %s: %w", path, err)
	case err != nil:
		return fmt.Errorf("open %s: %w: %w; restore a backup into an empty directory", path, ErrCorrupt, err)
	}
	return db.Close()
}
