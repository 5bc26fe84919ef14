package podsecurity

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/pod-security-admission/api"

	"podium/pkg/apiserver/admission"
	"podium/pkg/version"
)

// Label values of decisions and modes.
const (
	allow = "allow"
	deny  = "deny"

	enforce = "enforce"
	audit   = "audit"
	warn    = "warn"
)

// metrics are upstream's series. A nil *metrics counts nothing.
type metrics struct {
	evaluations, exemptions, errors *prometheus.CounterVec
}

// newMetrics registers the series with r. It returns nil if r is nil.
func newMetrics(r prometheus.Registerer) *metrics {
	if r == nil {
		return nil
	}
	of := []string{"request_operation", "resource", "subresource"}
	m := &metrics{
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

// evaluated counts an evaluation of a pod or template in a mode.
func (m *metrics) evaluated(decision string, s api.LevelVersion, mode string, a *admission.Attributes) {
	if m != nil {
		m.evaluations.WithLabelValues(append([]string{decision, string(s.Level), versionLabel(s), mode}, subjectLabels(a)...)...).Inc()
	}
}

func (m *metrics) exempted(a *admission.Attributes) {
	if m != nil {
		m.exemptions.WithLabelValues(subjectLabels(a)...).Inc()
	}
}

// failed counts a policy that could not be read (fatal) or has invalid labels.
func (m *metrics) failed(fatal bool, a *admission.Attributes) {
	if m != nil {
		m.errors.WithLabelValues(append([]string{strconv.FormatBool(fatal)}, subjectLabels(a)...)...).Inc()
	}
}

// versionLabel is the version's label value. It bounds the number of series: a
// version after this server's own is "future".
func versionLabel(s api.LevelVersion) string {
	switch minor, err := strconv.Atoi(version.Minor); {
	case s.Level == api.LevelPrivileged || s.Latest():
		return api.VersionLatest
	case err == nil && s.Minor() > minor:
		return "future"
	}
	return s.Version.String()
}

func subjectLabels(a *admission.Attributes) []string {
	resource := "controller"
	switch a.Resource.Resource {
	case "pods":
		resource = "pod"
	case "namespaces":
		resource = "namespace"
	}
	return []string{strings.ToLower(string(a.Operation)), resource, a.Subresource}
}
