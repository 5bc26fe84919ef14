package storagetest

import (
	"context"
	"errors"
	"testing"

	"podium/pkg/storage"
)

// testEnded checks that a call whose context has ended fails, if at all, with the
// error of the context: a client that disconnects must not count as a failure of
// the store.
func testEnded(t *testing.T, f *fixture) {
	rev := f.create("a", "v")
	last := f.create("d", "v")
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	for name, call := range map[string]func() error{
		"Get":    func() error { _, err := f.Get(ctx, f.key("a")); return err },
		"List":   func() error { _, err := f.List(ctx, f.prefix, storage.ListOptions{}); return err },
		"Create": func() error { _, err := f.Create(ctx, f.key("b"), []byte("v")); return err },
		"Update": func() error { _, err := f.Update(ctx, f.key("a"), []byte("w"), rev); return err },
		"Delete": func() error { _, err := f.Delete(ctx, f.key("d"), last); return err },
	} {
		if err := call(); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want context.Canceled", name, err)
		}
	}
}
