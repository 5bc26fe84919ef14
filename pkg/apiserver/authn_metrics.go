package apiserver

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
	"podium/pkg/prom"
)

// authnMetrics are the authentication series, named and labelled as upstream's.
type authnMetrics struct {
	users    *prometheus.CounterVec
	attempts map[string]prometheus.Counter // by result
	times    map[string]prometheus.Observer
}

// The results of an authentication attempt.
const (
	authnSuccess = "success"
	authnFailure = "failure" // no credentials
	authnError   = "error"   // invalid credentials
)

func newAuthnMetrics(r *prometheus.Registry) *authnMetrics {
	f := prom.For(r)
	users := f.CounterVec("authenticated_user_requests", "Authenticated requests, by user name.", "username")
	attempts := f.CounterVec("authentication_attempts", "Authentication attempts, by result.", "result")
	times := f.HistogramVec("authentication_duration_seconds", "Duration of the authentication, by result.", prometheus.ExponentialBuckets(0.001, 2, 15), "result")
	m := &authnMetrics{users: users, attempts: map[string]prometheus.Counter{}, times: map[string]prometheus.Observer{}}
	for _, result := range []string{authnSuccess, authnFailure, authnError} {
		m.attempts[result], m.times[result] = attempts.WithLabelValues(result), times.WithLabelValues(result)
	}
	return m
}

// counted returns an authenticator that calls a and records the result and the
// duration.
func (m *authnMetrics) counted(a authn.Authenticator, now func() time.Time) authn.Authenticator {
	return authn.Func(func(r *http.Request) (*request.User, error) {
		began := now()
		user, err := a.Authenticate(r)
		result := authnFailure
		switch {
		case user != nil:
			result = authnSuccess
			m.users.WithLabelValues(nameGroup(user.Name)).Inc()
		case err != nil:
			result = authnError
		}
		m.attempts[result].Inc()
		m.times[result].Observe(now().Sub(began).Seconds())
		return user, err
	})
}

// nameGroup returns the label for a user name. It bounds the number of series
// and keeps personal names out of them.
func nameGroup(user string) string {
	switch user {
	case "admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default":
		return user
	}
	if strings.Contains(user, "@") {
		return "email_id"
	}
	return "other"
}
