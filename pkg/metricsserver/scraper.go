package metricsserver

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/backoff"
	"podium/pkg/client/informer"
	"podium/pkg/metricsserver/usage"
)

// scraper asks the kubelets. Every node has a worker of its own, so that a kubelet that
// hangs delays no other.
type scraper struct {
	nodes      *informer.Informer[*corev1.Node]
	store      *usage.Store
	sample     func(context.Context, *corev1.Node) (usage.Sample, error)
	resolution time.Duration
	metrics    *metrics
	log        *slog.Logger
	now        func() time.Time

	mu      sync.Mutex
	running map[string]bool // nodes that have a worker
}

// run keeps a worker for each node until ctx ends. Call it once.
func (s *scraper) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	s.nodes.OnChange(func(_, n *corev1.Node) {
		if n == nil {
			return // its worker ends by itself
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.running[n.Name] {
			s.running[n.Name] = true
			g.Go(func() error { s.work(ctx, n.Name); return nil })
		}
	})
	g.Go(func() error { return s.nodes.Run(ctx) })
	return g.Wait()
}

// firstWithin spreads the first requests.
const firstWithin = time.Second

// work asks one kubelet until the node or ctx ends. The second request comes early, so
// that the usage is known soon, and at a random time, which spreads the later ones.
func (s *scraper) work(ctx context.Context, name string) {
	wait := time.Duration(rand.Int64N(int64(firstWithin)))
	second := s.resolution/2 + time.Duration(rand.Int64N(int64(s.resolution/2)))
	log := s.log.With("node", name)
	retry := backoff.Backoff{Initial: time.Second, Max: s.resolution}
	failed := false
	for backoff.Sleep(ctx, wait) == nil {
		node := s.node(name)
		if node == nil {
			return
		}
		began := s.now()
		sample, err := s.sample(ctx, node)
		took := s.now().Sub(began)
		if ctx.Err() != nil {
			return
		}
		s.metrics.observe(took, err)
		switch {
		case err == nil:
			s.store.Put(name, sample)
			if failed {
				log.Info("the kubelet answers again")
			}
		case !failed:
			log.Warn("ask the kubelet failed", "err", err)
		default:
			log.Debug("ask the kubelet failed", "err", err)
		}
		failed = err != nil
		wait = max(s.resolution-took, 0)
		switch {
		case second > 0 && err != nil: // the kubelet of a new node may not serve yet
			wait = min(wait, retry.Next())
		case second > 0:
			wait, second = second, 0
		}
	}
}

// node returns the node, or nil when it does not exist any more; the worker must end then.
func (s *scraper) node(name string) *corev1.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.nodes.Get("", name)
	if !ok {
		delete(s.running, name)
		s.store.Forget(name)
		return nil
	}
	return n
}
