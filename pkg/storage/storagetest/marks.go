package storagetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"podium/pkg/storage"
)

func testMarks(t *testing.T, f *fixture) {
	w := f.watch(f.create("a", "1"))
	if errors.Is(w.Mark(f.ctx), errors.ErrUnsupported) {
		t.Skip("this store cannot tell a watch's progress")
	}
	b := f.create("b", "1")
	outside, err := f.Create(f.ctx, "/elsewhere"+f.prefix+"x", []byte("v"))
	if err != nil {
		t.Fatal(err)
	}
	asking, stop := context.WithCancel(f.ctx)
	asked := make(chan error, 1)
	go func() { asked <- askMarks(asking, w) }()
	defer func() {
		stop()
		if err := <-asked; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("ask for a mark: %v", err)
		}
	}()
	seen := false
	for {
		events, err := w.Next(f.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range events {
			switch {
			case !ev.IsMark():
				seen = seen || ev.Revision == b
			case ev.Revision >= b && !seen:
				t.Fatalf("mark %d came before the event %d", ev.Revision, b)
			case ev.Revision >= outside:
				return
			}
		}
	}
}

// askMarks requests marks until ctx ends, because a single request may get lost.
func askMarks(ctx context.Context, w storage.Watch) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := w.Mark(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
