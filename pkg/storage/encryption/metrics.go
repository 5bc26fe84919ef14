package encryption

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"podium/pkg/prom"
)

// metrics holds the metrics of this package, with the names and labels of
// kube-apiserver. A nil *metrics is valid only for transformed.
type metrics struct {
	identity string // hash of the name of the API server

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
	f := prom.For(r)
	return &metrics{
		identity: hash(identity),
		durations: f.HistogramVec("apiserver_storage_transformation_duration_seconds", "How long it took to encrypt or decrypt a value.",
			prometheus.ExponentialBuckets(5e-6, 2, 25), "transformation_type", "transformer_prefix"),
		operations: f.CounterVec("apiserver_storage_transformation_operations_total", "Values encrypted and decrypted, by status: OK or the error's code.",
			"resource", "transformation_type", "transformer_prefix", "status"),
		misses: f.Counter("apiserver_storage_envelope_transformation_cache_misses_total", "Seeds that a KMS plugin had to decrypt."),
		keyTimes: f.Histogram("apiserver_storage_data_key_generation_duration_seconds", "How long it took to make a seed.",
			prometheus.ExponentialBuckets(5e-6, 2, 14)),
		keyErrors: f.Counter("apiserver_storage_data_key_generation_failures_total", "Seeds that could not be made."),
		calls: f.HistogramVec("apiserver_envelope_encryption_kms_operations_latency_seconds", "How long calls to KMS plugins took.",
			prometheus.ExponentialBuckets(0.0001, 2, 20), "provider_name", "method_name", "grpc_status_code"),
		keys: f.CounterVec("apiserver_envelope_encryption_key_id_hash_total", "How often each key of a KMS plugin was used.",
			"transformation_type", "provider_name", "key_id_hash", "apiserver_id_hash"),
		statusKeys: f.GaugeVec("apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds", "When a KMS plugin last named a key as its present one.",
			"provider_name", "key_id_hash", "apiserver_id_hash"),
		invalid: f.CounterVec("apiserver_envelope_encryption_invalid_key_id_from_status_total", "How often a KMS plugin named a key that cannot be one.",
			"provider_name", "error"),
		seeds: f.GaugeVec("apiserver_envelope_encryption_dek_source_cache_size", "Cached seeds of data encryption keys.",
			"provider_name"),
		reloads: f.CounterVec("apiserver_encryption_config_controller_automatic_reloads_total", "Reloads of the encryption configuration.",
			"status", "apiserver_id_hash"),
		reloadTime: f.GaugeVec("apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds", "When the encryption configuration was last reloaded.",
			"status", "apiserver_id_hash"),
		config: f.GaugeVec("apiserver_encryption_config_controller_last_config_info", "The encryption configuration in use, by the hash of its file.",
			"apiserver_id_hash", "hash"),
	}
}

// hash returns a hash for a name that must not appear in metrics and logs.
func hash(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name)))
}

// transformed records that a value was encrypted or decrypted. Resources without a
// configuration have no metrics: m is nil.
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

// statusKeyID records the present key of a plugin. It deletes the series of the
// previous key, so that a plugin that changes its key often does not fill the
// memory.
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
