package encryption

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// metrics are the series of this package, named and labelled as upstream's.
type metrics struct {
	identity string // hash of the server's name

	durations  *prometheus.HistogramVec
	operations *prometheus.CounterVec
	misses     prometheus.Counter
	keyTimes   prometheus.Histogram
	keyErrors  prometheus.Counter

	calls      *prometheus.HistogramVec
	keys       *prometheus.CounterVec
	statusKeys *prometheus.GaugeVec
	invalid    *prometheus.CounterVec
	seeds      *prometheus.GaugeVec

	reloads    *prometheus.CounterVec
	reloadTime *prometheus.GaugeVec
	config     *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer, identity string) *metrics {
	m := &metrics{
		identity: hash(identity),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_storage_transformation_duration_seconds", Help: "How long it took to encrypt or decrypt a value.",
			Buckets: prometheus.ExponentialBuckets(5e-6, 2, 25),
		}, []string{"transformation_type", "transformer_prefix"}),
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_storage_transformation_operations_total", Help: "Values encrypted and decrypted; the status is OK, or says what went wrong.",
		}, []string{"resource", "transformation_type", "transformer_prefix", "status"}),
		misses: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_storage_envelope_transformation_cache_misses_total", Help: "Seeds that a KMS plugin had to decrypt.",
		}),
		keyTimes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "apiserver_storage_data_key_generation_duration_seconds", Help: "How long it took to make a seed.",
			Buckets: prometheus.ExponentialBuckets(5e-6, 2, 14),
		}),
		keyErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_storage_data_key_generation_failures_total", Help: "Seeds that could not be made.",
		}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_envelope_encryption_kms_operations_latency_seconds", Help: "How long calls to KMS plugins took.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 20),
		}, []string{"provider_name", "method_name", "grpc_status_code"}),
		keys: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_envelope_encryption_key_id_hash_total", Help: "How often each key of a KMS plugin was used.",
		}, []string{"transformation_type", "provider_name", "key_id_hash", "apiserver_id_hash"}),
		statusKeys: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds", Help: "When a KMS plugin last named a key as its present one.",
		}, []string{"provider_name", "key_id_hash", "apiserver_id_hash"}),
		invalid: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_envelope_encryption_invalid_key_id_from_status_total", Help: "How often a KMS plugin named a key that cannot be one.",
		}, []string{"provider_name", "error"}),
		seeds: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_envelope_encryption_dek_source_cache_size", Help: "Seeds that are known without asking the KMS plugin.",
		}, []string{"provider_name"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_encryption_config_controller_automatic_reloads_total", Help: "Reloads of the encryption configuration.",
		}, []string{"status", "apiserver_id_hash"}),
		reloadTime: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds", Help: "When the encryption configuration was last reloaded.",
		}, []string{"status", "apiserver_id_hash"}),
		config: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_encryption_config_controller_last_config_info", Help: "The encryption configuration in use, by the hash of its file.",
		}, []string{"apiserver_id_hash", "hash"}),
	}
	if r != nil {
		r.MustRegister(m.durations, m.operations, m.misses, m.keyTimes, m.keyErrors,
			m.calls, m.keys, m.statusKeys, m.invalid, m.seeds, m.reloads, m.reloadTime, m.config)
	}
	return m
}

// hash stands for a name that should not be told.
func hash(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name)))
}

// transformed notes a value encrypted or decrypted; resources without a
// configuration are not noted.
func (m *metrics) transformed(resource, kind, prefix string, began time.Time, err error) {
	if m == nil {
		return
	}
	m.operations.WithLabelValues(resource, kind, prefix, statusOf(err)).Inc()
	if err == nil {
		m.durations.WithLabelValues(kind, prefix).Observe(time.Since(began).Seconds())
	}
}

func statusOf(err error) string {
	if err == nil {
		return codes.OK.String()
	}
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Code().String()
	}
	return "unknown-non-grpc"
}

func (m *metrics) missed() { m.misses.Inc() }

func (m *metrics) keyMade(began time.Time, err error) {
	if err != nil {
		m.keyErrors.Inc()
		return
	}
	m.keyTimes.Observe(time.Since(began).Seconds())
}

func (m *metrics) keyUsed(kind, plugin, keyID string) {
	m.keys.WithLabelValues(kind, plugin, hash(keyID), m.identity).Inc()
}

// statusKeyID notes the present key. The series of its predecessor goes, so
// that a plugin that changes its key often does not fill the memory.
func (m *metrics) statusKeyID(plugin, keyID string) {
	m.statusKeys.DeletePartialMatch(prometheus.Labels{"provider_name": plugin})
	m.statusKeys.WithLabelValues(plugin, hash(keyID), m.identity).SetToCurrentTime()
}

func (m *metrics) invalidKeyID(plugin, keyID string) {
	kind := "too_long"
	if keyID == "" {
		kind = "empty"
	}
	m.invalid.WithLabelValues(plugin, kind).Inc()
}

func (m *metrics) seedsKept(plugin string, n int) { m.seeds.WithLabelValues(plugin).Set(float64(n)) }

func (m *metrics) reloaded(err error) {
	word := "success"
	if err != nil {
		word = "failure"
	}
	m.reloads.WithLabelValues(word, m.identity).Inc()
	m.reloadTime.WithLabelValues(word, m.identity).SetToCurrentTime()
}

func (m *metrics) loaded(sum string) {
	m.config.Reset()
	m.config.WithLabelValues(m.identity, sum).Set(1)
}
