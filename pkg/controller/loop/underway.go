package loop

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	longestDesc = prometheus.NewDesc("workqueue_longest_running_processor_seconds",
		"How long the oldest reconcile under way has been running", []string{"name"}, nil)
	unfinishedDesc = prometheus.NewDesc("workqueue_unfinished_work_seconds",
		"How long all reconciles under way have been running, added up", []string{"name"}, nil)
)

// underWay is a prometheus.Collector of how long reconciles have been running. It computes
// this at each scrape: a reconcile that hangs changes nothing between two of them.
type underWay struct {
	mu    sync.Mutex
	loops map[string]*runs // by name
}

// of returns the runs of all loops of that name; each term of a leader has a new loop.
func (u *underWay) of(name string) *runs {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.loops[name] == nil {
		u.loops[name] = &runs{began: map[*time.Time]bool{}}
	}
	return u.loops[name]
}

// Describe implements prometheus.Collector.
func (u *underWay) Describe(out chan<- *prometheus.Desc) {
	out <- longestDesc
	out <- unfinishedDesc
}

// Collect implements prometheus.Collector.
func (u *underWay) Collect(out chan<- prometheus.Metric) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for name, r := range u.loops {
		longest, sum := r.durations()
		out <- prometheus.MustNewConstMetric(longestDesc, prometheus.GaugeValue, longest.Seconds(), name)
		out <- prometheus.MustNewConstMetric(unfinishedDesc, prometheus.GaugeValue, sum.Seconds(), name)
	}
}

// runs are the reconciles under way, by when they began.
type runs struct {
	mu    sync.Mutex
	began map[*time.Time]bool
}

// begin returns a function that ends the reconcile, which returns how long it took.
func (r *runs) begin() (end func() time.Duration) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began[&now] = true
	return func() time.Duration {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.began, &now)
		return time.Since(now)
	}
}

// durations returns how long the longest reconcile has been running, and all of them together.
func (r *runs) durations() (longest, sum time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for began := range r.began {
		d := time.Since(*began)
		sum += d
		longest = max(longest, d)
	}
	return longest, sum
}
