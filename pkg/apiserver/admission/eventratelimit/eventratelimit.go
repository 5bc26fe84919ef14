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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/apiserver/admission"
)

// New makes the rule. The server's own events, and dry runs, are not limited.
func New(c Config, now func() time.Time) admission.Func {
	var limits []*limiter
	for _, l := range c.Limits {
		limits = append(limits, &limiter{Limit: l, now: now, buckets: map[string]*list.Element{}})
	}
	return func(_ context.Context, a *admission.Attributes) error {
		event, ok := a.Object.(*corev1.Event)
		if !ok || a.DryRun || a.User == nil || a.Operation != admission.Create && a.Operation != admission.Update {
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
	}
}

// tooManyRequests has upstream's text, which shows several errors as a list.
func tooManyRequests(reached []string) error {
	text := reached[0]
	if len(reached) > 1 {
		text = "[" + strings.Join(reached, ", ") + "]"
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: text,
	}}
}

// limiter is a limit and the buckets of the keys used last.
type limiter struct {
	Limit
	now func() time.Time

	mu      sync.Mutex
	order   list.List // of *bucket, the one used last in front
	buckets map[string]*list.Element
}

type bucket struct {
	key string
	*rate.Limiter
}

// allow takes a token of the key's bucket. The bucket that was not used for the
// longest time makes room for a new one.
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

// key is what an event counts for.
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
