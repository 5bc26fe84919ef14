package scheduler

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
	"podium/pkg/daemon"
	"podium/pkg/scheduler/extender"
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/plugins"
	"podium/pkg/scheduler/queue"
)

// leaseName is the name of the Lease of the leader election.
const leaseName = "kube-scheduler"

const defaultBinds = 32

// Config configures Run. The zero value of a field is its default.
type Config struct {
	Client   *client.Client
	Log      *slog.Logger
	Registry prometheus.Registerer // nil: metrics are not exported
	Health   *daemon.Health        // nil: readiness is not reported

	SchedulerName   string // the spec.schedulerName to schedule without Profiles; default default-scheduler
	daemon.Election        // the lease's default name is kube-scheduler

	Queue    queue.Config
	Profiles []plugins.Profile    // default: one of SchedulerName
	Plugins  []framework.Weighted // run after those of each profile

	Extenders         []extender.Config // asked for the pods of all profiles
	ExtenderTransport http.RoundTripper // of requests to extenders; default: one of its own for each

	Binds int    // number of pods bound at a time; default 32
	Seed  uint64 // of the choice among nodes of equal score; 0: the first by name
}

func (c *Config) setDefaults() {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.SchedulerName == "" {
		c.SchedulerName = corev1.DefaultSchedulerName
	}
	if len(c.Profiles) == 0 {
		c.Profiles = []plugins.Profile{{SchedulerName: c.SchedulerName}}
	}
	if c.LeaseName == "" {
		c.LeaseName = leaseName
	}
	if c.Binds == 0 {
		c.Binds = defaultBinds
	}
}
