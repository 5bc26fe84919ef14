package scheduler

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
	"podium/pkg/client/events"
	"podium/pkg/client/informer"
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/queue"
	"podium/pkg/scheduler/snapshot"
)

// Run schedules pods until ctx ends; then it returns nil. With LeaderElect it
// does so while it is its turn, and waits for the next one otherwise.
func Run(ctx context.Context, cfg Config) error {
	cfg.setDefaults()
	d := &daemonState{metrics: newMetrics(cfg.Registry)}
	d.metrics.watch(d.queue)
	if cfg.Health != nil {
		cfg.Health.Add("sched-handler-sync", d.ready)
	}
	lead := func(ctx context.Context) error {
		s := newScheduler(cfg, d.metrics)
		d.running.Store(s)
		defer d.running.Store(nil)
		return s.run(ctx)
	}
	return cfg.Lead(ctx, cfg.Client, cfg.Log, d.metrics.leading(cfg.LeaseName), lead)
}

// daemonState is what outlives a leadership.
type daemonState struct {
	metrics *metrics
	running atomic.Pointer[scheduler] // nil while another replica leads
}

var errNotSynced = errors.New("the first list of pods and nodes is not there yet")

// ready holds for a replica that waits for its turn, too.
func (d *daemonState) ready() error {
	if s := d.running.Load(); s != nil && !(s.pods.Synced() && s.nodes.Synced()) {
		return errNotSynced
	}
	return nil
}

func (d *daemonState) queue() *queue.Queue {
	if s := d.running.Load(); s != nil {
		return s.queue
	}
	return nil
}

// scheduler is one leadership: it begins with fresh lists, so that it sees what
// the leader before it did, and its goroutines end with it.
type scheduler struct {
	cfg     Config
	metrics *metrics
	api     client.Resource[*corev1.Pod]
	pods    *informer.Informer[*corev1.Pod]
	nodes   *informer.Informer[*corev1.Node]
	events  *events.Recorder
	queue   *queue.Queue
	writes  pool

	mu        sync.Mutex // guards what follows; taken before the queue's own
	snap      *snapshot.Snapshot
	algorithm *framework.Scheduler
}

func newScheduler(cfg Config, m *metrics) *scheduler {
	cfg.Queue.Moved = m.moved
	s := &scheduler{
		cfg: cfg, metrics: m,
		api:    client.For[*corev1.Pod](cfg.Client),
		events: events.New(cfg.Client, cfg.SchedulerName, "", cfg.Log),
		queue:  queue.New(cfg.Queue),
		writes: pool{max: cfg.Binds},
		snap:   snapshot.New(),
	}
	var rnd *rand.Rand
	if cfg.Seed != 0 {
		rnd = rand.New(rand.NewPCG(cfg.Seed, 0))
	}
	s.algorithm = NewAlgorithm(rnd)
	s.pods = informer.New(s.api, informer.Options{
		FieldSelector: unfinished, Log: cfg.Log.With("informer", "pods"), Transform: strip,
	})
	s.pods.OnChange(s.onPod)
	s.nodes = informer.New(client.For[*corev1.Node](cfg.Client), informer.Options{
		Log: cfg.Log.With("informer", "nodes"), Transform: strip,
	})
	s.nodes.OnChange(s.onNode)
	return s
}

func (s *scheduler) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.nodes.Run(ctx) })
	g.Go(func() error { return s.pods.Run(ctx) })
	g.Go(func() error { return s.events.Run(ctx) })
	g.Go(func() error {
		defer s.writes.wait()
		if s.nodes.WaitSynced(ctx) != nil || s.pods.WaitSynced(ctx) != nil {
			return nil // asked to end before it began
		}
		s.cfg.Log.Info("scheduling", "nodes", len(s.nodes.List()), "pods", len(s.pods.List()))
		for {
			a := s.queue.Pop(ctx)
			if a == nil {
				return nil
			}
			s.attempt(ctx, a)
		}
	})
	return g.Wait()
}

// attempt tries to find a node for one pod. It does not wait for the API: what
// has to be written is written behind its back.
func (s *scheduler) attempt(ctx context.Context, a *queue.Attempt) {
	began := time.Now()
	pod := snapshot.NewPod(a.Pod)
	s.mu.Lock()
	place, err := s.algorithm.Schedule(s.snap, pod)
	var undo func()
	if err == nil {
		undo = s.snap.Assume(pod, place.Node)
	}
	s.mu.Unlock()
	s.metrics.algorithm.Observe(time.Since(began).Seconds())
	if err != nil {
		s.unschedulable(ctx, a, began, err)
		return
	}
	s.cfg.Log.Debug("place found", "pod", a.Pod.Namespace+"/"+a.Pod.Name, "node", place.Node, "score", place.Score, "feasible", place.Feasible)
	s.writes.do(func() { s.bind(ctx, &binding{attempt: a, began: began, node: place.Node, undo: undo}) })
}
