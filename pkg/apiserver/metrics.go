package apiserver

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/endpoints"
	"podium/pkg/apiserver/flowcontrol"
	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/request"
	"podium/pkg/prom"
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
	watches   atomic.Pointer[map[schema.GroupVersionKind]watchSeries] // for the served kinds; see setKinds
	watchVecs watchVecs
	serves    func(*request.Info) (resource, subresource bool)
}

// watchSeries are the watch series of one served version of a kind.
type watchSeries struct {
	events   prometheus.Counter
	sizes    prometheus.Observer
	watchers prometheus.Gauge
}

const component = "apiserver"

func newMetrics(r *prometheus.Registry, flow *flowcontrol.Limiter) *metrics {
	f := prom.For(r)
	m := &metrics{
		requests: f.CounterVec("apiserver_request_total", "Requests answered, by verb, dry run, group, version, resource, scope, component and HTTP response code.",
			"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component", "code"),
		durations: f.HistogramVec("apiserver_request_duration_seconds", "How long requests took, watches and streams left out.",
			[]float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}, "verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"),
		sizes: f.HistogramVec("apiserver_response_sizes", "Bytes of response bodies.",
			prometheus.ExponentialBuckets(1000, 10, 7), "verb", "group", "version", "resource", "subresource", "scope", "component"),
		drops: f.CounterVec("apiserver_dropped_requests_total", "Requests turned away because too many were in flight.", "request_kind"),
		long: f.GaugeVec("apiserver_longrunning_requests", "Watches under way.",
			"verb", "group", "version", "resource", "subresource", "scope", "component"),
		store: f.HistogramVec("etcd_request_duration_seconds", "How long requests to the store took.",
			[]float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}, "operation", "group", "resource"),
		storeErrs: f.CounterVec("etcd_request_errors_total", "Requests to the store that failed.", "operation", "group", "resource"),
	}
	inflight := func(kind string, count func() int64) {
		labelled := prometheus.WrapRegistererWith(prometheus.Labels{"request_kind": kind}, r)
		prom.For(labelled).GaugeFunc("apiserver_current_inflight_requests", "Requests under way.", func() float64 { return float64(count()) })
	}
	inflight("readOnly", func() int64 { reading, _ := flow.Counts(); return reading })
	inflight("mutating", func() int64 { _, writing := flow.Counts(); return writing })
	m.watchMetrics(r)
	return m
}

// watchVecs are the watch series, for all kinds.
type watchVecs struct {
	events   *prometheus.CounterVec
	sizes    *prometheus.HistogramVec
	watchers *prometheus.GaugeVec
}

func (m *metrics) watchMetrics(r *prometheus.Registry) {
	labels := []string{"group", "version", "resource"}
	f := prom.For(r)
	events := f.CounterVec("apiserver_watch_events_total", "Events sent to watching clients.", labels...)
	sizes := f.HistogramVec("apiserver_watch_events_sizes", "Bytes of events sent to watching clients.",
		prometheus.ExponentialBuckets(1024, 2, 8), labels...)
	watchers := f.GaugeVec("apiserver_registered_watchers", "Clients that are watching.", "group", "version", "kind")
	m.watchVecs = watchVecs{events, sizes, watchers}
	m.setKinds(nil)
}

// setKinds creates the watch series of the served kinds. The series of kinds
// that are no longer served stay. It is safe for concurrent use with the
// observing methods.
func (m *metrics) setKinds(kinds []*registry.Kind) {
	watches, vecs := map[schema.GroupVersionKind]watchSeries{}, m.watchVecs
	for _, k := range kinds {
		for _, v := range k.Served() {
			watches[v.GroupVersionKind] = watchSeries{
				events:   vecs.events.WithLabelValues(v.Group, v.Version, v.Resource),
				sizes:    vecs.sizes.WithLabelValues(v.Group, v.Version, v.Resource),
				watchers: vecs.watchers.WithLabelValues(v.Group, v.Version, v.GroupVersionKind.Kind),
			}
		}
	}
	m.watches.Store(&watches)
}

// WatchEvent counts an event of the given encoded size. It ignores kinds that
// are not served.
func (m *metrics) WatchEvent(gvk schema.GroupVersionKind, bytes int) {
	if s, ok := (*m.watches.Load())[gvk]; ok {
		s.events.Inc()
		s.sizes.Observe(float64(bytes))
	}
}

// WatchStarted counts a watch until ended is called. Call ended exactly once.
func (m *metrics) WatchStarted(gvk schema.GroupVersionKind) (ended func()) {
	s, ok := (*m.watches.Load())[gvk]
	if !ok {
		return func() {}
	}
	s.watchers.Inc()
	return s.watchers.Dec
}

var _ endpoints.Observer = (*metrics)(nil)

// other is upstream's label for what the server does not serve. It keeps
// clients from adding series by requesting names that do not exist.
const other = "other"

// target is the resource of a request, with other in place of names that are
// not served.
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

// observe records a finished request. Code 0 counts as 200. Durations and sizes
// are not recorded for watches and streams.
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

// codeLabel returns the label for a status code: other if HTTP does not define
// it, since a pod behind the proxy subresource chooses its own codes.
func codeLabel(code int) string {
	if http.StatusText(code) == "" {
		return other
	}
	return strconv.Itoa(code)
}

// dropped counts a request that flow control has rejected.
func (m *metrics) dropped(req *request.Request) {
	kind := "mutating"
	if req.ReadOnly() {
		kind = "readOnly"
	}
	m.drops.WithLabelValues(kind).Inc()
}

// metricVerb returns upstream's verb label for a request.
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

// timed returns a store that calls s and measures each call.
func (m *metrics) timed(s storage.Store) storage.Store { return &timedStore{Store: s, m: m} }

// timedStore is a store that measures its reads and writes.
type timedStore struct {
	storage.Store
	m *metrics
}

// note records one call of the store. key is the key or prefix of the call.
func (t *timedStore) note(operation, key string, began time.Time, err error) {
	group, resource := groupOfKey(key)
	t.m.store.WithLabelValues(operation, group, resource).Observe(time.Since(began).Seconds())
	if err != nil {
		t.m.storeErrs.WithLabelValues(operation, group, resource).Inc()
	}
}

// groupOfKey returns the group and resource that a storage key belongs to.
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
