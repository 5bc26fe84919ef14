package flowcontrol

import (
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestWritesOfOneUser(t *testing.T) {
	now := time.Now()
	w := NewWrites(1000, func() time.Time { return now })
	written := func(user string, writes int) (n int) {
		for range writes {
			if w.Spend(user, 500) == nil {
				n += 500
			}
		}
		return n
	}
	if n := written("mallory", 100); n != 16_000 {
		t.Errorf("%d bytes at once", n)
	}
	if n := written("alice", 1); n != 500 {
		t.Errorf("%d bytes of another user", n)
	}
	err := w.Spend("mallory", 1)
	if after, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || after != 1 {
		t.Errorf("%v: retry after %d", err, after)
	}
	now = now.Add(10 * time.Second)
	if n := written("mallory", 100); n != 10_000 {
		t.Errorf("%d bytes after ten seconds", n)
	}
	now = now.Add(time.Second)
	if err := w.Spend("mallory", 1_000_000); err != nil {
		t.Errorf("a write of more than the burst: %v", err)
	}
	if after, _ := apierrors.SuggestsClientDelay(w.Spend("mallory", 1)); after != 1000 {
		t.Errorf("retry after %d seconds", after)
	}
	now = now.Add(time.Hour)
	for i := range manyBuckets + 10 {
		if err := w.Spend(fmt.Sprint(i), 1); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.buckets) > manyBuckets+10 || w.buckets["mallory"] != (bucket{}) {
		t.Errorf("%d buckets", len(w.buckets))
	}
}
