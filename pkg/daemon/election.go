package daemon

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/pflag"

	"podium/pkg/client"
	"podium/pkg/client/leaderelection"
)

// Election configures leader election. With the zero value every replica works.
type Election struct {
	LeaderElect   bool
	LeaseName     string // required
	LeaseSpace    string // default kube-system
	LeaseDuration time.Duration
	RenewDeadline time.Duration
	RetryPeriod   time.Duration
	Identity      string // of this replica; default: host name and a random suffix
	Dir           string // keeps the default identity for the process after this one; "": nothing does
}

// DefaultElection returns the defaults of a daemon that runs in several replicas. The
// directory is that of systemd's RuntimeDirectory=.
func DefaultElection(lease string) Election {
	return Election{
		LeaderElect: true, LeaseName: lease, LeaseSpace: "kube-system",
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Dir: os.Getenv("RUNTIME_DIRECTORY"),
	}
}

// AddFlags registers the flags. Call it on an Election that holds the defaults.
func (e *Election) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&e.LeaderElect, "leader-elect", e.LeaderElect, "run only while this replica holds the Lease; needed with several replicas")
	fs.StringVar(&e.LeaseName, "leader-elect-resource-name", e.LeaseName, "name of the lease")
	fs.StringVar(&e.LeaseSpace, "leader-elect-resource-namespace", e.LeaseSpace, "namespace of the lease")
	fs.DurationVar(&e.LeaseDuration, "leader-elect-lease-duration", e.LeaseDuration, "time after the last renewal after which another replica may acquire the Lease")
	fs.DurationVar(&e.RenewDeadline, "leader-elect-renew-deadline", e.RenewDeadline, "time for which the leader retries a renewal before it stops")
	fs.DurationVar(&e.RetryPeriod, "leader-elect-retry-period", e.RetryPeriod, "time between attempts to get or renew the lease")
}

// Lead calls lead whenever this replica becomes the leader, as leaderelection.Run does;
// without LeaderElect it calls lead once. onLeading may be nil.
func (e Election) Lead(ctx context.Context, c *client.Client, log *slog.Logger, onLeading func(bool), lead func(context.Context) error) error {
	if !e.LeaderElect {
		return lead(ctx)
	}
	identity, lock := e.identity(log)
	defer lock.Close()
	return leaderelection.Run(ctx, leaderelection.Config{
		Client: c, Namespace: e.LeaseSpace, Name: e.LeaseName, Identity: identity,
		LeaseDuration: e.LeaseDuration, RenewDeadline: e.RenewDeadline, RetryPeriod: e.RetryPeriod,
		Log: log, OnLeading: onLeading,
	}, lead)
}

// identity returns the identity of this replica, and what the caller closes after use.
func (e Election) identity(log *slog.Logger) (string, io.Closer) {
	if e.Identity != "" {
		return e.Identity, io.NopCloser(nil)
	}
	if e.Dir != "" {
		kept, lock, err := keptIdentity(e.Dir)
		if err == nil {
			return kept, lock
		}
		log.Warn("a restart will wait until the lease expires", "lease", e.LeaseName, "error", err)
	}
	return newIdentity(), io.NopCloser(nil)
}
