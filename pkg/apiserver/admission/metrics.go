package admission

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/prom"
)

// Series are the series that several plugins share, with upstream's names.
type Series struct {
	webhookLatency    *prometheus.HistogramVec
	webhookRequests   *prometheus.CounterVec
	webhookRejections *prometheus.CounterVec
	webhookFailOpen   *prometheus.CounterVec

	conditionErrors     *prometheus.CounterVec
	conditionExclusions *prometheus.CounterVec
	conditionLatency    *prometheus.HistogramVec
}

// NewSeries makes the series and registers them with r; nil: nowhere.
func NewSeries(r prometheus.Registerer) *Series {
	f := prom.For(r)
	return &Series{
		webhookLatency: f.HistogramVec("apiserver_admission_webhook_admission_duration_seconds", "Time of an admission webhook's calls in seconds.",
			[]float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 25}, "name", "type", "operation", "rejected"),
		webhookRequests:   f.CounterVec("apiserver_admission_webhook_request_total", "Calls of an admission webhook.", "name", "type", "operation", "code", "rejected"),
		webhookRejections: f.CounterVec("apiserver_admission_webhook_rejection_count", "Requests rejected because of an admission webhook.", "name", "type", "operation", "error_type", "rejection_code"),
		webhookFailOpen:   f.CounterVec("apiserver_admission_webhook_fail_open_count", "Requests that passed because the failure policy of an admission webhook that failed is Ignore.", "name", "type"),
		conditionErrors:   f.CounterVec("apiserver_admission_match_condition_evaluation_errors_total", "Match conditions that could not be evaluated.", "name", "kind", "type", "operation"),
		conditionExclusions: f.CounterVec("apiserver_admission_match_condition_exclusions_total", "Requests that match conditions excluded.",
			"name", "kind", "type", "operation"),
		conditionLatency: f.HistogramVec("apiserver_admission_match_condition_evaluation_seconds", "Time of evaluating match conditions in seconds.",
			[]float64{0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25}, "name", "kind", "type", "operation"),
	}
}

// The phases, as labels of series.
const (
	PhaseAdmit    = "admit"
	PhaseValidate = "validating"
)

// The reasons for which a webhook makes the server reject a request.
const (
	RejectedByWebhook  = "no_error"
	RejectedUncallable = "calling_webhook_error"
	RejectedInternally = "apiserver_internal_error"
)

// maxCode stands for all larger status codes, to bound the number of series.
const maxCode = 600

// WebhookCalled counts a call of a webhook. rejected is empty if the request
// was not rejected, else the reason.
func (s *Series) WebhookCalled(a *Attributes, name, phase string, took time.Duration, code int, rejected string) {
	op, status, no := string(a.Operation), strconv.Itoa(min(code, maxCode)), strconv.FormatBool(rejected != "")
	s.webhookRequests.WithLabelValues(name, phase, op, status, no).Inc()
	s.webhookLatency.WithLabelValues(name, phase, op, no).Observe(took.Seconds())
	if rejected != "" {
		s.webhookRejections.WithLabelValues(name, phase, op, rejected, status).Inc()
	}
}

// WebhookFailedOpen counts a request that passed although a webhook failed.
func (s *Series) WebhookFailedOpen(name, phase string) {
	s.webhookFailOpen.WithLabelValues(name, phase).Inc()
}

// ConditionsEvaluated counts an evaluation of the match conditions of a webhook
// or a policy, which kind says.
func (s *Series) ConditionsEvaluated(a *Attributes, name, kind, phase string, took time.Duration, excluded bool, err error) {
	op := string(a.Operation)
	s.conditionLatency.WithLabelValues(name, kind, phase, op).Observe(took.Seconds())
	if excluded {
		s.conditionExclusions.WithLabelValues(name, kind, phase, op).Inc()
	}
	if err != nil {
		s.conditionErrors.WithLabelValues(name, kind, phase, op).Inc()
	}
}
