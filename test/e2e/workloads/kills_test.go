package workloads

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"podium/test/e2e/docked"
	"podium/test/e2e/traffic"
)

// victim is a daemon of a node.
type victim struct{ node, unit string }

func kubelets() (all []victim) {
	for _, node := range workers {
		all = append(all, victim{node, "kubelet"})
	}
	return all
}

// kills kills one victim after the other, again and again.
type kills struct {
	stop func() // fails the test if a victim could not be killed
}

// startKills kills the next victim each time that so much time has passed, until stop.
func startKills(t *testing.T, every time.Duration, victims []victim) *kills {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	var errs []error
	done := 0
	running.Go(func() {
		for ; ; done++ {
			traffic.Pause(ctx, every)
			if ctx.Err() != nil {
				return
			}
			if err := strike(ctx, victims[done%len(victims)]); err != nil && ctx.Err() == nil {
				errs = append(errs, err)
			}
		}
	})
	end := sync.OnceFunc(func() {
		cancel()
		running.Wait()
		t.Logf("%d daemons were killed", done)
		if err := errors.Join(errs...); err != nil || done == 0 {
			t.Errorf("%d kills: %v", done, err)
		}
	})
	t.Cleanup(end)
	return &kills{stop: end}
}

// strike kills a daemon's process, which systemd starts again.
func strike(ctx context.Context, v victim) error {
	_, err := docked.Docker(ctx, "exec", v.node, "systemctl", "kill", "--signal=KILL", "--kill-whom=main", v.unit)
	return err
}
