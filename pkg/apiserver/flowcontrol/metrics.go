package flowcontrol

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/prom"
)

// reason is the reason for which a request was rejected.
type reason uint8

const (
	admitted         reason = iota
	queueFull               // the queue, or the user, has too many requests
	concurrencyLimit        // the level has no free seat and no queues
	timeOut                 // it waited for too long
	cancelled               // the client gave up
	reasons
)

func (r reason) String() string {
	return [reasons]string{"", "queue-full", "concurrency-limit", "time-out", "cancelled"}[r]
}

// prefix is that of upstream's names.
const prefix = "apiserver_flowcontrol_"

// metrics are the series of requests, by priority level and FlowSchema.
type metrics struct {
	dispatched, rejected, noRoom                            *prometheus.CounterVec
	inQueue, inQueueSeats, executing, executingSeats        *prometheus.GaugeVec
	queueLength, waitDuration, executionDuration, estimated *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	f, level, schema := prom.For(r), "priority_level", "flow_schema"
	seconds := []float64{0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30}
	return &metrics{
		dispatched:        f.CounterVec(prefix+"dispatched_requests_total", "Requests that were executed.", level, schema),
		rejected:          f.CounterVec(prefix+"rejected_requests_total", "Requests that were refused.", level, schema, "reason"),
		inQueue:           f.GaugeVec(prefix+"current_inqueue_requests", "Requests that wait in queues.", level, schema),
		inQueueSeats:      f.GaugeVec(prefix+"current_inqueue_seats", "Seats that the waiting requests are going to take.", level, schema),
		executing:         f.GaugeVec(prefix+"current_executing_requests", "Requests that hold seats.", level, schema),
		executingSeats:    f.GaugeVec(prefix+"current_executing_seats", "Seats that are taken.", level, schema),
		queueLength:       f.HistogramVec(prefix+"request_queue_length_after_enqueue", "Length of the queue that a request has entered.", []float64{0, 10, 25, 50, 100, 250, 500, 1000}, level, schema),
		waitDuration:      f.HistogramVec(prefix+"request_wait_duration_seconds", "How long requests waited in queues.", seconds, level, schema, "execute"),
		noRoom:            f.CounterVec(prefix+"request_dispatch_no_accommodation_total", "Requests that found no free seat and had to wait.", level, schema),
		executionDuration: f.HistogramVec(prefix+"request_execution_seconds", "How long requests held their seats.", seconds, level, schema, "type"),
		estimated:         f.HistogramVec(prefix+"work_estimated_seats", "Seats that requests were estimated to need.", []float64{1, 2, 4, 8, 16, 32, 64, 100}, level, schema),
	}
}

// series are the series of one FlowSchema in its level.
type series struct {
	dispatched, noRoom                               prometheus.Counter
	rejected                                         [reasons]prometheus.Counter
	inQueue, inQueueSeats, executing, executingSeats prometheus.Gauge
	queueLength, estimated                           prometheus.Observer
	wait                                             struct{ executed, rejected prometheus.Observer }
	execution                                        struct{ readOnly, mutating prometheus.Observer }
}

func (m *metrics) series(level, schema string) *series {
	s := &series{
		dispatched: m.dispatched.WithLabelValues(level, schema), noRoom: m.noRoom.WithLabelValues(level, schema),
		inQueue: m.inQueue.WithLabelValues(level, schema), inQueueSeats: m.inQueueSeats.WithLabelValues(level, schema),
		executing: m.executing.WithLabelValues(level, schema), executingSeats: m.executingSeats.WithLabelValues(level, schema),
		queueLength: m.queueLength.WithLabelValues(level, schema), estimated: m.estimated.WithLabelValues(level, schema),
	}
	s.wait.executed, s.wait.rejected = m.waitDuration.WithLabelValues(level, schema, "true"), m.waitDuration.WithLabelValues(level, schema, "false")
	s.execution.readOnly, s.execution.mutating = m.executionDuration.WithLabelValues(level, schema, "readOnly"), m.executionDuration.WithLabelValues(level, schema, "mutating")
	for why := admitted + 1; why < reasons; why++ {
		s.rejected[why] = m.rejected.WithLabelValues(level, schema, why.String())
	}
	return s
}

func (s *series) enqueued(seats, length int) {
	s.inQueue.Inc()
	s.inQueueSeats.Add(float64(seats))
	s.queueLength.Observe(float64(length))
}

func (s *series) dequeued(seats int) {
	s.inQueue.Dec()
	s.inQueueSeats.Sub(float64(seats))
}

func (s *series) began(seats int) {
	s.dispatched.Inc()
	s.executing.Inc()
	s.executingSeats.Add(float64(seats))
}

func (s *series) ended(seats int, took time.Duration, readOnly bool) {
	s.executing.Dec()
	s.executingSeats.Sub(float64(seats))
	if readOnly {
		s.execution.readOnly.Observe(took.Seconds())
	} else {
		s.execution.mutating.Observe(took.Seconds())
	}
}

// The series of levels, which are computed at a scrape.
var (
	fractionDesc = prometheus.NewDesc(prefix+"seat_fair_frac", "Fraction of its target that each level gets.", nil, nil)
	levelSeries  = []struct {
		desc *prometheus.Desc
		read func(*level) float64
	}{
		{levelDesc("nominal_limit_seats", "Seats of a level by its shares."), func(l *level) float64 { return float64(l.cfg.nominal) }},
		{levelDesc("lower_limit_seats", "Seats of a level that it does not lend."), func(l *level) float64 { return float64(l.cfg.min) }},
		{levelDesc("upper_limit_seats", "Seats of a level with all that it may borrow."), func(l *level) float64 { return float64(l.cfg.most) }},
		{levelDesc("current_limit_seats", "Seats that a level may use at present."), func(l *level) float64 { return float64(l.max) }},
		{levelDesc("target_seats", "Seats that a level should have by its demand."), func(l *level) float64 { return l.demand.target }},
		{levelDesc("demand_seats_high_watermark", "Highest demand for seats in the last period."), func(l *level) float64 { return float64(l.demand.high) }},
		{levelDesc("demand_seats_average", "Average demand for seats in the last period."), func(l *level) float64 { return l.demand.average }},
		{levelDesc("demand_seats_stdev", "Standard deviation of the demand in the last period."), func(l *level) float64 { return l.demand.dev }},
		{levelDesc("demand_seats_smoothed", "Demand for seats, smoothed."), func(l *level) float64 { return l.demand.smoothed }},
	}
)

func levelDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, help, []string{"priority_level"}, nil)
}

// Describe implements prometheus.Collector.
func (f *Limiter) Describe(ch chan<- *prometheus.Desc) {
	ch <- fractionDesc
	for _, s := range levelSeries {
		ch <- s.desc
	}
}

// Collect implements prometheus.Collector.
func (f *Limiter) Collect(ch chan<- prometheus.Metric) {
	p := f.plan.Load()
	ch <- prometheus.MustNewConstMetric(fractionDesc, prometheus.GaugeValue, p.fraction)
	values := make([]float64, len(levelSeries))
	for _, l := range p.levels {
		l.mu.Lock()
		for i, s := range levelSeries {
			values[i] = s.read(l)
		}
		l.mu.Unlock()
		for i, s := range levelSeries {
			ch <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, values[i], l.name)
		}
	}
}
