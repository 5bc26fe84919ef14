package storage_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podium/pkg/storage"
	"podium/pkg/storage/memory"
)

// With three Compactors on one store, history younger than one interval is kept,
// history older than two is compacted, and there is one compaction per interval.
func TestCompactorsShareAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: memory.New()}
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				c := storage.Compactor{Store: store, Key: "/registry/compaction", Log: slog.New(slog.DiscardHandler)}
				if err := c.Run(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("Run ended with %v", err)
				}
			})
			time.Sleep(time.Minute)
		}
		type write struct {
			rev int64
			at  time.Time
		}
		var writes []write
		rev, err := store.Create(ctx, "/registry/a", []byte("x"))
		for range 3600 {
			if err != nil {
				t.Fatal(err)
			}
			writes = append(writes, write{rev, time.Now()})
			time.Sleep(time.Second)
			rev, err = store.Update(ctx, "/registry/a", []byte("x"), rev)
		}
		for _, w := range writes {
			_, err := store.List(ctx, "/registry/", storage.ListOptions{Revision: w.rev})
			age := time.Since(w.at)
			if gone := errors.Is(err, storage.ErrCompacted); gone && age < 5*time.Minute || !gone && age > 10*time.Minute {
				t.Fatalf("revision %d, %v old: %v", w.rev, age, err)
			}
		}
		cancel()
		group.Wait()
		if n := store.compactions; n < 10 || n > 13 {
			t.Errorf("%d compactions in an hour", n)
		}
	})
}

// counting counts the compactions.
type counting struct {
	storage.Store
	mu          sync.Mutex
	compactions int
}

func (s *counting) Compact(ctx context.Context, rev int64) error {
	s.mu.Lock()
	s.compactions++
	s.mu.Unlock()
	return s.Store.Compact(ctx, rev)
}
