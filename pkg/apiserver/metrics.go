package apiserver

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/endpoints"
	"podium/pkg/apiserver/flowcontrol"
	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/request"
	"podium/pkg/storage"
)

// metrics are the server's series, named and labelled as upstream's.
type metrics struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	sizes     *prometheus.HistogramVec
	drops     *prometheus.CounterVec
	long      *prometheus.GaugeVec
	store     *prometheus.HistogramVec
	storeErrs *prometheus.CounterVec
	watches   map[schema.GroupVersionKind]watchSeries // fixed after newMetrics
	serves    func(*request.Info) (resource, subresource bool)
}

type watchSeries struct {
	events   prometheus.Counter
	sizes    prometheus.Observer
	watchers prometheus.Gauge
}

const component = "apiserver"

func newMetrics(r *prometheus.Registry, kinds []*registry.Kind, flow *flowcontrol.Inflight) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total",
			Help: "Requests answered, by verb, dry run, group, version, resource, scope, component and HTTP response code.",
		}, []string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component", "code"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_request_duration_seconds",
			Help:    "How long requests took, watches and streams left out.",
			Buckets: []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60},
		}, []string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"}),
		sizes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_response_sizes",
			Help:    "Bytes of response bodies.",
			Buckets: prometheus.ExponentialBuckets(1000, 10, 7),
		}, []string{"verb", "group", "version", "resource", "subresource", "scope", "component"}),
		drops: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_dropped_requests_total",
			Help: "Requests turned away because too many were in flight.",
		}, []string{"request_kind"}),
		long: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests",
			Help: "Watches under way.",
		}, []string{"verb", "group", "version", "resource", "subresource", "scope", "component"}),
		store: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "etcd_request_duration_seconds",
			Help:    "How long requests to the store took.",
			Buckets: []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60},
		}, []string{"operation", "group", "resource"}),
		storeErrs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "etcd_request_errors_total",
			Help: "Requests to the store that failed.",
		}, []string{"operation", "group", "resource"}),
		watches: map[schema.GroupVersionKind]watchSeries{},
	}
	inflight := func(kind string, count func() (int64, int64), pick func(r, w int64) int64) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "apiserver_current_inflight_requests", Help: "Requests under way.",
			ConstLabels: prometheus.Labels{"request_kind": kind},
		}, func() float64 { return float64(pick(count())) })
	}
	r.MustRegister(m.requests, m.durations, m.sizes, m.drops, m.long, m.store, m.storeErrs,
		inflight("readOnly", flow.Counts, func(r, _ int64) int64 { return r }),
		inflight("mutating", flow.Counts, func(_, w int64) int64 { return w }))
	m.watchMetrics(r, kinds)
	return m
}

func (m *metrics) watchMetrics(r *prometheus.Registry, kinds []*registry.Kind) {
	labels := []string{"group", "version", "resource"}
	events := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_watch_events_total", Help: "Events sent to watching clients.",
	}, labels)
	sizes := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "apiserver_watch_events_sizes", Help: "Bytes of events sent to watching clients.",
		Buckets: prometheus.ExponentialBuckets(1024, 2, 8),
	}, labels)
	watchers := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "apiserver_registered_watchers", Help: "Clients that are watching.",
	}, []string{"group", "version", "kind"})
	r.MustRegister(events, sizes, watchers)
	for _, k := range kinds {
		m.watches[k.GroupVersionKind] = watchSeries{
			events:   events.WithLabelValues(k.Group, k.Version, k.Resource),
			sizes:    sizes.WithLabelValues(k.Group, k.Version, k.Resource),
			watchers: watchers.WithLabelValues(k.Group, k.Version, k.GroupVersionKind.Kind),
		}
	}
}

// WatchEvent notes an event sent.
func (m *metrics) WatchEvent(gvk schema.GroupVersionKind, bytes int) {
	if s, ok := m.watches[gvk]; ok {
		s.events.Inc()
		s.sizes.Observe(float64(bytes))
	}
}

// WatchStarted notes a client that watches until ended is called.
func (m *metrics) WatchStarted(gvk schema.GroupVersionKind) (ended func()) {
	s, ok := m.watches[gvk]
	if !ok {
		return func() {}
	}
	s.watchers.Inc()
	return s.watchers.Dec
}

var _ endpoints.Observer = (*metrics)(nil)

// other is upstream's label of what is not served. A client must not be able
// to add series by asking for what does not exist.
const other = "other"

// target is what a request is about, in the words of what is served.
type target struct{ group, version, resource, subresource string }

func (m *metrics) target(info *request.Info) target {
	if !info.IsResource {
		return target{}
	}
	resource, subresource := m.serves(info)
	switch {
	case !resource:
		return target{resource: other}
	case !subresource:
		return target{info.Group, info.Version, info.Resource, other}
	}
	return target{info.Group, info.Version, info.Resource, info.Subresource}
}

// observe notes a request that has been answered.
func (m *metrics) observe(req *request.Request, r *http.Request, code int, size int64, took time.Duration) {
	if code == 0 {
		code = http.StatusOK
	}
	verb, dry := metricVerb(req, r), ""
	if r.URL.RawQuery != "" && strings.Contains(r.URL.RawQuery, "dryRun=All") {
		dry = "All"
	}
	t, scope := m.target(&req.Info), req.Scope()
	m.requests.WithLabelValues(verb, dry, t.group, t.version, t.resource, t.subresource, scope, component, codeLabel(code)).Inc()
	if req.LongRunning() {
		return
	}
	m.durations.WithLabelValues(verb, dry, t.group, t.version, t.resource, t.subresource, scope, component).Observe(took.Seconds())
	if req.Verb == "get" || req.Verb == "list" {
		m.sizes.WithLabelValues(verb, t.group, t.version, t.resource, t.subresource, scope, component).Observe(float64(size))
	}
}

// codeLabel is a status code that HTTP knows: what a pod answers through the
// proxy is the pod's own choice.
func codeLabel(code int) string {
	if http.StatusText(code) == "" {
		return other
	}
	return strconv.Itoa(code)
}

func (m *metrics) dropped(req *request.Request) {
	kind := "mutating"
	if req.ReadOnly() {
		kind = "readOnly"
	}
	m.drops.WithLabelValues(kind).Inc()
}

// metricVerb is the series' word for what a request does.
func metricVerb(req *request.Request, r *http.Request) string {
	switch {
	case req.Verb == "":
		return other
	case !req.IsResource:
		return strings.ToUpper(req.Verb)
	case req.Verb != "watch" && req.LongRunning():
		return "CONNECT"
	}
	switch req.Verb {
	case "create":
		return "POST"
	case "update":
		return "PUT"
	case "patch":
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch") {
			return "APPLY"
		}
	}
	return strings.ToUpper(req.Verb)
}

// timed is a store whose requests are measured.
func (m *metrics) timed(s storage.Store) storage.Store { return &timedStore{Store: s, m: m} }

type timedStore struct {
	storage.Store
	m *metrics
}

func (t *timedStore) note(operation, key string, began time.Time, err error) {
	group, resource := groupOfKey(key)
	t.m.store.WithLabelValues(operation, group, resource).Observe(time.Since(began).Seconds())
	if err != nil {
		t.m.storeErrs.WithLabelValues(operation, group, resource).Inc()
	}
}

// groupOfKey is the resource a storage key belongs to.
func groupOfKey(key string) (group, resource string) {
	rest := strings.TrimPrefix(key, "/registry/")
	folder, _, _ := strings.Cut(rest, "/")
	resource, group, _ = strings.Cut(folder, ".")
	return group, resource
}

func (t *timedStore) Get(ctx context.Context, key string) (storage.KV, error) {
	began := time.Now()
	kv, err := t.Store.Get(ctx, key)
	t.note("get", key, began, err)
	return kv, err
}

func (t *timedStore) List(ctx context.Context, prefix string, opts storage.ListOptions) (storage.Page, error) {
	began := time.Now()
	p, err := t.Store.List(ctx, prefix, opts)
	t.note("list", prefix, began, err)
	return p, err
}

func (t *timedStore) Create(ctx context.Context, key string, value []byte) (int64, error) {
	began := time.Now()
	rev, err := t.Store.Create(ctx, key, value)
	t.note("create", key, began, err)
	return rev, err
}

func (t *timedStore) Update(ctx context.Context, key string, value []byte, expect int64) (int64, error) {
	began := time.Now()
	rev, err := t.Store.Update(ctx, key, value, expect)
	t.note("update", key, began, err)
	return rev, err
}

func (t *timedStore) Delete(ctx context.Context, key string, expect int64) (int64, error) {
	began := time.Now()
	rev, err := t.Store.Delete(ctx, key, expect)
	t.note("delete", key, began, err)
	return rev, err
}
