package controller

import (
	"context"
	"log/slog"
	"time"

	"podium/pkg/client"
	"podium/pkg/client/events"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

// Spec describes a controller to the manager that runs it.
type Spec struct {
	Name      string // for --controllers
	Account   string // service account in kube-system that it acts as; default Name
	Component string // source of its events; default Account
	Workers   int    // keys reconciled at a time; 0: the default of package loop
	// New builds the controller and registers its event handlers. It does no I/O;
	// informers run after all controllers of the manager are built. nil: the
	// configuration does not enable the controller.
	New func(Context) (Runner, error)
}

// Runner is a built controller. Run blocks until ctx ends or the controller
// fails, and leaves no goroutine behind.
type Runner interface {
	Run(ctx context.Context) error
}

// Context is what the manager passes to a controller. It is a value: the shared informers
// and the metrics are common to all controllers, the rest belongs to the controller.
type Context struct {
	Client    *client.Client   // acts as the controller's account
	Informers *informers.Set   // shared; they use the daemon's credentials
	Own       *informers.Set   // of this controller only; they use its account
	Events    *events.Recorder // nil: no events are recorded
	Workers   int
	Log       *slog.Logger
	Metrics   *loop.Metrics
}

// NewLoop returns the controller's loop. The loop waits for the given informers before
// the first reconcile. pace is the minimum time between two reconciles of a key.
func (c Context) NewLoop(name string, pace time.Duration, reconcile loop.Reconcile, synced ...loop.Syncer) *loop.Loop {
	return loop.New(loop.Config{
		Name: name, Workers: c.Workers, Pace: pace, Reconcile: reconcile, Synced: synced, Log: c.Log, Metrics: c.Metrics,
	})
}
