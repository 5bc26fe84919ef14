package scheduler

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
	"podium/pkg/daemon"
	"podium/pkg/scheduler/queue"
)

// leaseName is that of the Lease for which replicas compete.
const leaseName = "kube-scheduler"

// Config is what the daemon needs. The zero value of a field is its default.
type Config struct {
	Client   *client.Client
	Log      *slog.Logger
	Registry prometheus.Registerer // nil: no metrics are shown
	Health   *daemon.Health        // nil: no readiness is shown

	SchedulerName   string // pods that name it are ours; default default-scheduler
	daemon.Election        // its lease's default is kube-scheduler

	Queue queue.Config
	Binds int    // how many pods are bound at a time; default 32
	Seed  uint64 // for the choice among equals; 0: nodes go by name
}

func (c *Config) setDefaults() {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.SchedulerName == "" {
		c.SchedulerName = corev1.DefaultSchedulerName
	}
	if c.LeaseName == "" {
		c.LeaseName = leaseName
	}
	if c.Binds == 0 {
		c.Binds = 32
	}
}
