package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/client/events"
	"podium/pkg/client/informer"
	"podium/pkg/scheduler/extender"
	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/plugins"
	"podium/pkg/scheduler/plugins/dynamicresources"
	"podium/pkg/scheduler/queue"
	"podium/pkg/scheduler/snapshot"
)

// Run schedules pods until ctx ends; then it returns nil. With LeaderElect it does so only
// while it holds the lease.
func Run(ctx context.Context, cfg Config) error {
	cfg.setDefaults()
	d := &daemonState{metrics: newMetrics(cfg.Registry)}
	d.metrics.watch(d.queue)
	if cfg.Health != nil {
		cfg.Health.Add("sched-handler-sync", d.ready)
	}
	lead := func(ctx context.Context) error {
		s, err := newScheduler(cfg, d.metrics)
		if err != nil {
			return err
		}
		d.running.Store(s)
		defer d.running.Store(nil)
		return s.run(ctx)
	}
	return cfg.Lead(ctx, cfg.Client, cfg.Log, d.metrics.leading(cfg.LeaseName), lead)
}

// daemonState is the state that survives a loss of leadership.
type daemonState struct {
	metrics *metrics
	running atomic.Pointer[scheduler] // nil while another replica leads
}

var errNotSynced = errors.New("the informers have not synced")

// ready returns the readiness error. A replica that does not lead is ready.
func (d *daemonState) ready() error {
	s := d.running.Load()
	if s == nil {
		return nil
	}
	for _, i := range append(s.others, s.nodes, s.pods) {
		if !i.Synced() {
			return errNotSynced
		}
	}
	return nil
}

func (d *daemonState) queue() *queue.Queue {
	if s := d.running.Load(); s != nil {
		return s.queue
	}
	return nil
}

// scheduler is the state of one leadership. It starts with new lists, so that it sees the
// changes of the previous leader; its goroutines end with it.
type scheduler struct {
	cfg     Config
	metrics *metrics
	api     client.Resource[*corev1.Pod]
	pods    *informer.Informer[*corev1.Pod]
	nodes   *informer.Informer[*corev1.Node]
	others  []source // informers of what plugins read besides
	queue   *queue.Queue
	writes  pool // bindings, evictions and status patches

	profiles  map[string]*profile // by spec.schedulerName
	extenders extender.List

	mu    sync.Mutex // guards the fields below and the profiles' algorithms; locked before the queue's own lock
	snap  *snapshot.Snapshot
	waits map[types.UID]context.CancelFunc // of pods whose bindings wait
}

// profile schedules the pods of one spec.schedulerName.
type profile struct {
	name      string
	algorithm *framework.Scheduler
	events    *events.Recorder
}

// of returns the profile of a pod in the queue.
func (s *scheduler) of(pod *corev1.Pod) *profile { return s.profiles[pod.Spec.SchedulerName] }

func newScheduler(cfg Config, m *metrics) (*scheduler, error) {
	cfg.Queue.Moved = m.moved
	var rnd *rand.Rand
	if cfg.Seed != 0 {
		rnd = rand.New(rand.NewPCG(cfg.Seed, 0))
	}
	s := &scheduler{
		cfg: cfg, metrics: m,
		api:    client.For[*corev1.Pod](cfg.Client),
		queue:  queue.New(cfg.Queue),
		writes: pool{max: cfg.Binds},
		snap:   snapshot.New(),
		waits:  map[types.UID]context.CancelFunc{},

		profiles: map[string]*profile{},
	}
	var err error
	if s.extenders, err = extender.New(cfg.Extenders, cfg.ExtenderTransport, cfg.Log); err != nil {
		return nil, err
	}
	node := func(name string) *corev1.Node {
		n, _ := s.nodes.Get("", name)
		return n
	}
	volumes := plugins.NewVolumes(newBinder(cfg.Client), node)
	devices := dynamicresources.New(newClaimWriter(cfg.Client), node)
	for _, p := range cfg.Profiles {
		list, err := p.Build(devices.Backs, extender.IgnoredResources(cfg.Extenders)...)
		if err != nil {
			return nil, fmt.Errorf("profile %s: %w", p.SchedulerName, err)
		}
		algorithm := framework.New(slices.Concat(list, volumes.List(), []framework.Weighted{{Plugin: devices, Weight: dynamicresources.Weight}}, cfg.Plugins), rnd)
		algorithm.Observe = m.observer(p.SchedulerName)
		s.profiles[p.SchedulerName] = &profile{
			name:      p.SchedulerName,
			algorithm: algorithm,
			events:    events.New(cfg.Client, p.SchedulerName, "", cfg.Log),
		}
	}
	s.pods = informer.New(s.api, informer.Options{
		FieldSelector: unfinished, Log: cfg.Log.With("informer", "pods"), Transform: s.strip,
	})
	s.pods.OnChange(s.onPod)
	s.nodes = informer.New(client.For[*corev1.Node](cfg.Client), informer.Options{
		Log: cfg.Log.With("informer", "nodes"), Transform: strip,
	})
	s.nodes.OnChange(s.onNode)
	s.others = []source{
		watched(s, "poddisruptionbudgets", s.onBudget),
		watched(s, "namespaces", s.onNamespace),
		watched(s, "services", s.onService),
		watched(s, "replicasets", onOwner(s, func(o *appsv1.ReplicaSet) *metav1.LabelSelector { return o.Spec.Selector })),
		watched(s, "statefulsets", onOwner(s, func(o *appsv1.StatefulSet) *metav1.LabelSelector { return o.Spec.Selector })),
		watched(s, "replicationcontrollers", onOwner(s, func(o *corev1.ReplicationController) *metav1.LabelSelector {
			return &metav1.LabelSelector{MatchLabels: o.Spec.Selector}
		})),
	}
	s.others = slices.Concat(s.others, s.volumeSources(volumes), s.deviceSources(devices))
	return s, nil
}

func (s *scheduler) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.nodes.Run(ctx) })
	g.Go(func() error { return s.pods.Run(ctx) })
	for _, o := range s.others {
		g.Go(func() error { return o.Run(ctx) })
	}
	for _, p := range s.profiles {
		g.Go(func() error { return p.events.Run(ctx) })
	}
	g.Go(func() error {
		defer s.extenders.Close()
		defer s.writes.wait()
		if !s.waitSynced(ctx) {
			return nil // ctx ended
		}
		s.cfg.Log.Info("scheduler started", "nodes", len(s.nodes.List()), "pods", len(s.pods.List()))
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

// waitSynced blocks until all informers have synced. It returns false if ctx ended before.
func (s *scheduler) waitSynced(ctx context.Context) bool {
	for _, i := range append(s.others, s.nodes, s.pods) {
		if i.WaitSynced(ctx) != nil {
			return false
		}
	}
	return true
}

// attempt runs the scheduling cycle for one pod. It does not wait for the API: the binding
// cycle and status patches run in the background.
func (s *scheduler) attempt(ctx context.Context, a *queue.Attempt) {
	b := &binding{attempt: a, pod: snapshot.NewPod(a.Pod), began: time.Now()}
	nomination, err := s.cycle(ctx, b)
	s.metrics.algorithm.Observe(time.Since(b.began).Seconds())
	switch {
	case errors.Is(err, errNotPending):
		s.queue.Remove(a.Pod.UID)
	case errors.Is(err, framework.ErrNoNodes) || errors.As(err, new(*framework.FitError)):
		s.unschedulable(ctx, a, b.began, nomination, err)
	case err != nil:
		s.failed(ctx, a, b.began, nomination, err)
	default:
		s.cfg.Log.Debug("node chosen", "pod", a.Pod.Namespace+"/"+a.Pod.Name, "node", b.node)
		s.startBinding(ctx, b)
	}
}

// cycle chooses the binding's node and reserves it. If no node fits, b.node is "", and the
// PostFilter plugins may nominate one.
func (s *scheduler) cycle(ctx context.Context, b *binding) (nomination framework.Nomination, err error) {
	if asked := s.extenders.For(b.pod.Pod); len(asked) > 0 {
		return s.extended(ctx, b, asked)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	place, err := s.of(b.pod.Pod).algorithm.Schedule(s.snap, b.pod)
	if err != nil {
		var fit *framework.FitError
		if errors.As(err, &fit) {
			nomination = s.of(b.pod.Pod).algorithm.PostFilter(s.snap, b.pod, fit)
			s.preempt(ctx, b.pod, nomination)
		}
		return nomination, err
	}
	return nomination, s.place(b, place)
}

// place reserves the node for the binding. Callers hold the lock.
func (s *scheduler) place(b *binding, at framework.Placement) error {
	b.node = at.Node
	s.unnominate(b)
	b.undo.Push(s.snap.Assume(b.pod, b.node))
	err := s.of(b.pod.Pod).algorithm.Reserve(b.pod, b.node, &b.undo)
	if err != nil {
		b.undo.Run()
	}
	return err
}
