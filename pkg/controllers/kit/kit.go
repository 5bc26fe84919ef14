package kit

import (
	"log/slog"
	"time"

	"podium/pkg/client"
	"podium/pkg/client/events"
	"podium/pkg/controllers/loop"
	"podium/pkg/controllers/views"
)

// Kit is a value; each controller has its own, with its own recorder and
// number of workers. The views are everybody's.
type Kit struct {
	Client  *client.Client
	Views   *views.Views
	Events  *events.Recorder // nil: none are recorded
	Workers int              // how many keys are reconciled at a time; 0: the loop's default
	Log     *slog.Logger
	Metrics *loop.Metrics
}

// Loop makes a controller's loop. It waits for the informers given; pace is
// the least time between two reconciles of one key.
func (k Kit) Loop(name string, pace time.Duration, reconcile loop.Reconcile, synced ...loop.Syncer) *loop.Loop {
	return loop.New(loop.Config{
		Name: name, Workers: k.Workers, Pace: pace, Reconcile: reconcile, Synced: synced, Log: k.Log, Metrics: k.Metrics,
	})
}
