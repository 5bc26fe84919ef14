package probes

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheme"
)

// Recorder records events of probes.
type Recorder interface {
	EventOn(obj scheme.Object, fieldPath, eventType, reason, message string)
}

// Config is shared by all probes of a kubelet.
type Config struct {
	Check   Checker
	Events  Recorder
	Log     *slog.Logger
	Metrics *Metrics // nil: no metrics
}

// Target is a running container to probe.
type Target struct {
	Pod       *corev1.Pod // for its events and ports; its status has the pod's IP
	Container *corev1.Container
	ID        string
	Started   time.Time
	// The container's state in the API, from an earlier kubelet.
	WasReady, WasStarted bool
}

// Set holds the probes of one pod. It is safe for concurrent use.
type Set struct {
	cfg      Config
	onChange func()

	mu      sync.Mutex
	probed  map[string]*probed // by container id
	running sync.WaitGroup
}

// probed is the state of one container's probes.
type probed struct {
	cancel  context.CancelFunc
	target  Target
	ready   bool
	started bool
	failed  Kind          // Liveness or Startup if the container must be killed, else ""
	up      chan struct{} // closed when started
	ending  bool          // only the readiness probe continues
	stop    []func()      // cancel the liveness and startup probes
}

// New returns an empty set. onChange is called on a probe's goroutine when a result
// has changed.
func New(cfg Config, onChange func()) *Set {
	return &Set{cfg: cfg, onChange: onChange, probed: map[string]*probed{}}
}

// Keep makes targets the probed containers: it starts the probes of new ones and
// cancels those of others. ending means that the pod is being terminated; then only
// readiness probes run. Probes end with ctx. Keep does not block.
func (s *Set) Keep(ctx context.Context, targets []Target, ending bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	named := map[string]bool{}
	for _, t := range targets {
		named[t.ID] = true
		if p := s.probed[t.ID]; p == nil {
			s.beginLocked(ctx, t, ending)
		} else {
			p.target.Pod = t.Pod
			if ending && !p.ending {
				p.ending = true
				for _, stop := range p.stop {
					stop()
				}
			}
		}
	}
	for id, p := range s.probed {
		if !named[id] {
			p.cancel()
			delete(s.probed, id)
		}
	}
}

// Wait blocks until no probe runs: call it after Keep without targets or after the
// end of the probes' context.
func (s *Set) Wait() { s.running.Wait() }

// Ready reports whether the container's readiness probe, if any, succeeds. It is
// false for an unknown id.
func (s *Set) Ready(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.probed[id]
	return p != nil && p.ready
}

// Started reports whether the container's startup probe, if any, has succeeded. It
// is false for an unknown id.
func (s *Set) Started(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.probed[id]
	return p != nil && p.started
}

// Failed returns the type of the probe whose failure requires that the container is
// killed; "" if there is none.
func (s *Set) Failed(id string) Kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.probed[id]; p != nil {
		return p.failed
	}
	return ""
}

// beginLocked starts the probes of a container. s.mu is held.
func (s *Set) beginLocked(ctx context.Context, t Target, ending bool) {
	ctx, cancel := context.WithCancel(ctx)
	c := t.Container
	p := &probed{
		cancel: cancel, target: t, ending: ending, up: make(chan struct{}),
		started: c.StartupProbe == nil || t.WasStarted,
		ready:   c.ReadinessProbe == nil || t.WasReady,
	}
	if p.started {
		close(p.up)
	}
	s.probed[t.ID] = p
	if c.ReadinessProbe != nil {
		s.launch(ctx, p, Readiness, c.ReadinessProbe)
	}
	if ending {
		return
	}
	for kind, spec := range map[Kind]*corev1.Probe{Liveness: c.LivenessProbe, Startup: c.StartupProbe} {
		if spec == nil || kind == Startup && p.started {
			continue
		}
		ctx, stop := context.WithCancel(ctx)
		p.stop = append(p.stop, stop)
		s.launch(ctx, p, kind, spec)
	}
}

func (s *Set) launch(ctx context.Context, p *probed, kind Kind, spec *corev1.Probe) {
	r := &rhythm{set: s, p: p, kind: kind, spec: spec, target: p.target}
	s.running.Go(func() { r.run(ctx) })
}

// report records a result that has reached its threshold.
func (s *Set) report(p *probed, kind Kind, good bool) {
	s.mu.Lock()
	changed := false
	switch kind {
	case Readiness:
		changed = p.ready != good
		p.ready = good
	case Startup:
		if good && !p.started {
			p.started, changed = true, true
			close(p.up)
		}
		if !good && p.failed == "" {
			p.failed, changed = Startup, true
		}
	case Liveness:
		if !good && p.failed == "" {
			p.failed, changed = Liveness, true
		}
	}
	s.mu.Unlock()
	if changed {
		s.onChange()
	}
}

func (s *Set) pod(p *probed) *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.target.Pod
}
