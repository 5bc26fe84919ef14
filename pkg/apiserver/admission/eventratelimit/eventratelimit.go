// Package eventratelimit is the admission plugin EventRateLimit: it limits how
// many Events are written, for the whole server, for a namespace, for a user,
// or for a source and the object that it reports on.
//
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#eventratelimit
package eventratelimit

import (
	"container/list"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/admission"
)

// New returns the plugin. It does not limit dry runs and Events of the server
// itself. A request over a limit gets a 429 error.
func New(h admission.Host, c Config) admission.Plugin {
	var limits []*limiter
	for _, l := range c.Limits {
		limits = append(limits, &limiter{Limit: l, now: h.Now, buckets: map[string]*list.Element{}})
	}
	return admission.Plugin{
		Operations: []admission.Operation{admission.Create, admission.Update},
		Validate: func(_ context.Context, a *admission.Attributes) error {
			event, ok := a.Object.(*corev1.Event)
			if !ok || a.DryRun || a.User == nil {
				return nil
			}
			var reached []string
			for _, l := range limits {
				if key := l.key(a, event); !l.allow(key) {
					reached = append(reached, fmt.Sprintf("limit reached on type %v for key %v", l.Type, key))
				}
			}
			if len(reached) > 0 {
				return tooManyRequests(reached)
			}
			return nil
		},
	}
}

// tooManyRequests returns a 429 with upstream's text, which shows several errors
// as a list.
func tooManyRequests(reached []string) error {
	text := reached[0]
	if len(reached) > 1 {
		text = "[" + strings.Join(reached, ", ") + "]"
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: text,
	}}
}

// limiter is a limit with the buckets of the most recently used keys. It is safe
// for concurrent use.
type limiter struct {
	Limit
	now func() time.Time

	mu      sync.Mutex
	order   list.List // of *bucket, the most recently used first
	buckets map[string]*list.Element
}

type bucket struct {
	key string
	*rate.Limiter
}

// allow takes a token from the key's bucket and reports whether there was one. A
// new bucket replaces the least recently used one when the cache is full.
func (l *limiter) allow(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.buckets[key]
	if e == nil {
		if len(l.buckets) >= int(l.CacheSize) {
			oldest := l.order.Remove(l.order.Back()).(*bucket)
			delete(l.buckets, oldest.key)
		}
		e = l.order.PushFront(&bucket{key, rate.NewLimiter(rate.Limit(l.QPS), int(l.Burst))})
		l.buckets[key] = e
	}
	l.order.MoveToFront(e)
	return e.Value.(*bucket).AllowN(l.now(), 1)
}

// key returns the key of the bucket that an event takes its token from.
func (l *limiter) key(a *admission.Attributes, event *corev1.Event) string {
	switch l.Type {
	case Namespace:
		return a.Namespace
	case User:
		return a.User.Name
	case SourceAndObject:
		on := &event.InvolvedObject
		return event.Source.Component + event.Source.Host + on.Kind + on.Namespace + on.Name + string(on.UID) + on.APIVersion
	}
	return ""
}
