package poll_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"podium/pkg/cluster/poll"
)

func TestUntilGivesTheLastComplaint(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	complaint := errors.New("the door is shut")
	err := poll.Until(ctx, time.Millisecond, func(ctx context.Context) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return complaint
	})
	if !errors.Is(err, complaint) {
		t.Errorf("got %v, want what was last complained of", err)
	}
}
