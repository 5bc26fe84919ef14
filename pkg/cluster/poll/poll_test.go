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

func TestWaitEndsWhenTheCheckCannotSucceed(t *testing.T) {
	crashed, starting := errors.New("etcd exited"), errors.New("connection refused")
	var reports []string
	wait := poll.Wait{
		For: time.Minute, Every: time.Millisecond, Report: func(text string) { reports = append(reports, text) },
		Failed: func(context.Context) error {
			if len(reports) < 3 {
				return nil
			}
			return crashed
		},
	}
	if err := wait.Until(t.Context(), func(context.Context) error { return starting }); !errors.Is(err, crashed) || len(reports) != 3 {
		t.Errorf("got %v after the reports %q", err, reports)
	}
	wait.For, wait.Failed = 20*time.Millisecond, nil
	if err := wait.Until(t.Context(), func(context.Context) error { return starting }); !errors.Is(err, starting) {
		t.Errorf("got %v after the timeout, want the last error of the check", err)
	}
	if err := wait.Until(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}
