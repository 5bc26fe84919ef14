package shutdown

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/backoff"
	"podium/pkg/prom"
)

// Bus delays shutdowns and tells of them; *Logind implements it.
type Bus interface {
	// MaxDelay returns how long a shutdown can be delayed.
	MaxDelay() (time.Duration, error)
	// RaiseMaxDelay asks for a longer delay; MaxDelay shows when it is granted.
	RaiseMaxDelay(time.Duration) error
	// Inhibit delays shutdowns until the lock is released.
	Inhibit() (Lock, error)
	// Next blocks until a shutdown begins (true) or is cancelled (false), or ctx ends.
	Next(ctx context.Context) (bool, error)
	Close() error
}

// Lock is an inhibitor lock.
type Lock interface{ Close() error }

// Config holds the dependencies of a Manager.
type Config struct {
	Periods Periods // none: Run does nothing
	Connect func() (Bus, error)
	// Dir is the directory of the file with the times of the last shutdown.
	Dir      string
	Registry prometheus.Registerer // nil: no metrics
	Log      *slog.Logger
}

// Pods are the pods of the node.
type Pods interface {
	// Pods returns the pods with their latest status.
	Pods() []*corev1.Pod
	// Terminate ends a pod, whose containers get at most grace to stop. It blocks until
	// nothing of the pod runs, or ctx ends.
	Terminate(ctx context.Context, pod *corev1.Pod, grace time.Duration)
}

// How long to wait until logind grants a longer delay, how often to look, and when to
// connect again after a failure.
const (
	grantWait   = 5 * time.Second
	grantPeriod = 100 * time.Millisecond
	reconnect   = 30 * time.Second
)

// settle is how long after its period the pods of a group have to be killed and to
// report their final status.
const settle = time.Second

// Manager ends the pods of the node before it shuts down.
type Manager struct {
	cfg        Config
	pods       Pods   // of Run
	changed    func() // of Run
	active     atomic.Bool
	start, end prometheus.Gauge
}

// New returns a Manager. It does nothing until Run.
func New(cfg Config) *Manager {
	f := prom.For(cfg.Registry)
	m := &Manager{
		cfg:   cfg,
		start: f.Gauge("kubelet_graceful_shutdown_start_time_seconds", "Last graceful shutdown start time since unix epoch in seconds"),
		end:   f.Gauge("kubelet_graceful_shutdown_end_time_seconds", "Last graceful shutdown end time since unix epoch in seconds"),
	}
	m.show(m.load())
	return m
}

// Active reports whether the node is shutting down: then it takes no pods. It is safe
// for concurrent use.
func (m *Manager) Active() bool { return m.active.Load() }

// Run waits for shutdowns until ctx ends; it connects again after a failure. It calls
// changed after each change of Active. It always returns nil.
func (m *Manager) Run(ctx context.Context, pods Pods, changed func()) error {
	if len(m.cfg.Periods) == 0 {
		return nil
	}
	m.pods, m.changed = pods, changed
	for ctx.Err() == nil {
		if err := m.serve(ctx); err != nil && ctx.Err() == nil {
			m.cfg.Log.Warn("graceful node shutdown is not available", "error", err, "retry", reconnect)
		}
		_ = backoff.Sleep(ctx, reconnect) // an ended ctx is seen above
	}
	return nil
}

// serve handles shutdowns until the bus fails or ctx ends.
func (m *Manager) serve(ctx context.Context) error {
	bus, err := m.cfg.Connect()
	if err != nil {
		return err
	}
	defer bus.Close()
	if err := m.prepare(ctx, bus); err != nil {
		return err
	}
	lock, err := bus.Inhibit()
	if err != nil {
		return err
	}
	defer func() { lock.Close() }()
	m.set(false) // a shutdown of which the earlier connection told is over
	m.cfg.Log.Info("graceful node shutdown is enabled", "delay", m.cfg.Periods.Total())
	for {
		begins, err := bus.Next(ctx)
		if err != nil {
			return err
		}
		m.set(begins)
		if begins {
			m.cfg.Log.Info("the node is shutting down")
			m.endAll(ctx)
			lock.Close()
			continue
		}
		m.cfg.Log.Info("the shutdown of the node was cancelled")
		lock.Close()
		if lock, err = bus.Inhibit(); err != nil {
			return err
		}
	}
}

func (m *Manager) set(active bool) {
	if m.active.Swap(active) != active {
		m.changed()
	}
}

// prepare makes sure that a shutdown can be delayed as long as the periods take.
func (m *Manager) prepare(ctx context.Context, bus Bus) error {
	wanted := m.cfg.Periods.Total() + time.Duration(len(m.cfg.Periods))*settle
	now, err := bus.MaxDelay()
	if err != nil || now >= wanted {
		return err
	}
	if err := bus.RaiseMaxDelay(wanted); err != nil {
		return fmt.Errorf("raise the maximum delay of shutdowns from %v to %v: %w", now, wanted, err)
	}
	for waited := time.Duration(0); waited < grantWait; waited += grantPeriod {
		if now, err = bus.MaxDelay(); err == nil && now >= wanted {
			return nil
		}
		if err := backoff.Sleep(ctx, grantPeriod); err != nil {
			return err
		}
	}
	return fmt.Errorf("logind delays shutdowns for at most %v, wanted are %v", now, wanted)
}

// endAll ends the pods, group by group. It returns when all have ended or their periods
// are over.
func (m *Manager) endAll(ctx context.Context) {
	times := record{Start: time.Now()}
	m.save(times)
	for _, g := range m.cfg.Periods.groups(m.pods.Pods()) {
		m.endGroup(ctx, g)
	}
	times.End = time.Now()
	m.save(times)
}

func (m *Manager) endGroup(ctx context.Context, g group) {
	m.cfg.Log.Info("end pods before the node shuts down", "pods", len(g.pods), "period", g.grace)
	ctx, cancel := context.WithTimeout(ctx, g.grace+settle)
	defer cancel()
	var ending sync.WaitGroup
	for _, pod := range g.pods {
		ending.Go(func() { m.pods.Terminate(ctx, pod, g.grace) })
	}
	ending.Wait()
}

// record holds the times of a shutdown; they are zero before it.
type record struct {
	Start time.Time `json:"startTime"`
	End   time.Time `json:"endTime"`
}

const recordFile = "graceful_node_shutdown_state"

// load returns the record of the last shutdown.
func (m *Manager) load() record {
	var r record
	data, err := os.ReadFile(filepath.Join(m.cfg.Dir, recordFile))
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil && !os.IsNotExist(err) {
		m.cfg.Log.Warn("read record of the last shutdown failed", "error", err)
	}
	return r
}

// save keeps the record for the metrics of the next kubelet.
func (m *Manager) save(r record) {
	m.show(r)
	data, err := json.Marshal(r)
	if err == nil {
		err = os.WriteFile(filepath.Join(m.cfg.Dir, recordFile), data, 0o644)
	}
	if err != nil {
		m.cfg.Log.Warn("write record of the shutdown failed", "error", err)
	}
}

func (m *Manager) show(r record) {
	seconds := func(t time.Time) float64 {
		if t.IsZero() {
			return 0
		}
		return float64(t.UnixNano()) / float64(time.Second)
	}
	m.start.Set(seconds(r.Start))
	m.end.Set(seconds(r.End))
}
