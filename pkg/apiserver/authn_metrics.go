package apiserver

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
)

// authnMetrics are the series of who asks, named and labelled as upstream's.
type authnMetrics struct {
	users    *prometheus.CounterVec
	attempts map[string]prometheus.Counter // by result
	times    map[string]prometheus.Observer
}

// The results of an attempt to know a user.
const (
	authnSuccess = "success"
	authnFailure = "failure" // nothing was shown
	authnError   = "error"   // something bad was shown
)

func newAuthnMetrics(r *prometheus.Registry) *authnMetrics {
	users := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "authenticated_user_requests", Help: "Authenticated requests, by user name.",
	}, []string{"username"})
	attempts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "authentication_attempts", Help: "Requests whose user was asked for, by result.",
	}, []string{"result"})
	times := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "authentication_duration_seconds", Help: "How long it took to know the user, by result.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
	}, []string{"result"})
	r.MustRegister(users, attempts, times)
	m := &authnMetrics{users: users, attempts: map[string]prometheus.Counter{}, times: map[string]prometheus.Observer{}}
	for _, result := range []string{authnSuccess, authnFailure, authnError} {
		m.attempts[result], m.times[result] = attempts.WithLabelValues(result), times.WithLabelValues(result)
	}
	return m
}

// counted is an authenticator whose answers are counted.
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

// nameGroup keeps the number of series small, and names out of them.
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
