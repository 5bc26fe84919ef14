package scheduler

import (
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
	"podium/pkg/daemon"
	"podium/pkg/scheduler/queue"
)

// Config is what the daemon needs. The zero value of a field is its default.
type Config struct {
	Client   *client.Client
	Log      *slog.Logger
	Registry prometheus.Registerer // nil: no metrics are shown
	Health   *daemon.Health        // nil: no readiness is shown

	SchedulerName string // pods that name it are ours; default default-scheduler
	Identity      string // of this replica: host name and something random

	LeaderElect   bool
	LeaseName     string // default kube-scheduler
	LeaseSpace    string // default kube-system
	LeaseDuration time.Duration
	RenewDeadline time.Duration
	RetryPeriod   time.Duration

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
		c.LeaseName = "kube-scheduler"
	}
	if c.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		c.Identity = host + "_" + uuid.NewString()
	}
	if c.Binds == 0 {
		c.Binds = 32
	}
}
