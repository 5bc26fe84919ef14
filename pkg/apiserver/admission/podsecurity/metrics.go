package podsecurity

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/apiserver/admission"
	"podium/pkg/version"
)

// Label values: what was decided, and for which mode.
const (
	allow = "allow"
	deny  = "deny"

	enforce = "enforce"
	audit   = "audit"
	warn    = "warn"
)

func decisionOf(v Violations) string {
	if v == nil {
		return allow
	}
	return deny
}

// Metrics are upstream's series. A nil *Metrics counts nothing.
type Metrics struct {
	evaluations, exemptions, errors *prometheus.CounterVec
}

// NewMetrics registers the series.
func NewMetrics(r prometheus.Registerer) *Metrics {
	of := []string{"request_operation", "resource", "subresource"}
	m := &Metrics{
		evaluations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pod_security_evaluations_total",
			Help: "Pods and templates held against a standard, by what came of it; exempt ones are not counted.",
		}, append([]string{"decision", "policy_level", "policy_version", "mode"}, of...)),
		exemptions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pod_security_exemptions_total",
			Help: "Requests that were exempt from every standard.",
		}, of),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pod_security_errors_total",
			Help: "Requests whose policy was not found (fatal) or not understood, so that the strictest counted.",
		}, append([]string{"fatal"}, of...)),
	}
	r.MustRegister(m.evaluations, m.exemptions, m.errors)
	return m
}

func (m *Metrics) evaluated(decision string, s Standard, mode string, a *admission.Attributes) {
	if m != nil {
		m.evaluations.WithLabelValues(append([]string{decision, s.Level.String(), versionLabel(s), mode}, subjectLabels(a)...)...).Inc()
	}
}

func (m *Metrics) exempted(a *admission.Attributes) {
	if m != nil {
		m.exemptions.WithLabelValues(subjectLabels(a)...).Inc()
	}
}

func (m *Metrics) failed(fatal bool, a *admission.Attributes) {
	if m != nil {
		m.errors.WithLabelValues(append([]string{strconv.FormatBool(fatal)}, subjectLabels(a)...)...).Inc()
	}
}

// versionLabel keeps the number of series small: a version we do not have yet
// is "future".
func versionLabel(s Standard) string {
	switch minor, err := strconv.Atoi(version.Minor); {
	case s.Level == Privileged || !s.Version.pinned:
		return Latest().String()
	case err == nil && s.Version.minor > minor:
		return "future"
	}
	return s.Version.String()
}

func subjectLabels(a *admission.Attributes) []string {
	resource := "controller"
	switch a.Kind.Resource {
	case "pods":
		resource = "pod"
	case "namespaces":
		resource = "namespace"
	}
	return []string{strings.ToLower(string(a.Operation)), resource, a.Subresource}
}
