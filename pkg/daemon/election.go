package daemon

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"
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
}

// DefaultElection returns the defaults of a daemon that runs in several replicas.
func DefaultElection(lease string) Election {
	return Election{
		LeaderElect: true, LeaseName: lease, LeaseSpace: "kube-system",
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
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
	if e.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		e.Identity = host + "_" + uuid.NewString()
	}
	return leaderelection.Run(ctx, leaderelection.Config{
		Client: c, Namespace: e.LeaseSpace, Name: e.LeaseName, Identity: e.Identity,
		LeaseDuration: e.LeaseDuration, RenewDeadline: e.RenewDeadline, RetryPeriod: e.RetryPeriod,
		Log: log, OnLeading: onLeading,
	}, lead)
}
