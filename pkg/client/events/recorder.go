package events

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/backoff"
	"podium/pkg/client"
	"podium/pkg/scheme"
)

const (
	queueLength = 1000

	maxTries   = 12 // of one write, while the server is unreachable
	firstRetry = 200 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// Recorder records the events of one component on one host. It is safe for
// concurrent use. A nil *Recorder discards events.
type Recorder struct {
	scheme    *scheme.Scheme
	events    client.Resource[*corev1.Event]
	source    corev1.EventSource
	log       *slog.Logger
	queue     chan *corev1.Event
	dropped   atomic.Int64
	correlate *correlator // used by Run only
}

// New returns a recorder. Events are queued until Run writes them.
func New(c *client.Client, component, host string, log *slog.Logger) *Recorder {
	return &Recorder{
		scheme:    c.Scheme(),
		events:    client.For[*corev1.Event](c),
		source:    corev1.EventSource{Component: component, Host: host},
		log:       log,
		queue:     make(chan *corev1.Event, queueLength),
		correlate: newCorrelator(),
	}
}

// Dropped returns the number of events that were dropped.
func (r *Recorder) Dropped() int64 { return r.dropped.Load() }

// Eventf is Event with a format.
func (r *Recorder) Eventf(obj scheme.Object, eventType, reason, format string, args ...any) {
	r.Event(obj, eventType, reason, fmt.Sprintf(format, args...))
}

// Event records an event about obj. eventType is Normal or Warning, reason is a
// CamelCase identifier, message is for people. It reads obj before it returns and
// never blocks; if the queue is full, the event is dropped.
func (r *Recorder) Event(obj scheme.Object, eventType, reason, message string) {
	r.EventOn(obj, "", eventType, reason, message)
}

// EventOn records an event about a field of obj: spec.containers{web}, say.
func (r *Recorder) EventOn(obj scheme.Object, fieldPath, eventType, reason, message string) {
	now := metav1.Now()
	r.put(obj, now.Time, func(e *corev1.Event) {
		e.InvolvedObject.FieldPath = fieldPath
		e.Type, e.Reason, e.Message = eventType, reason, message
		e.Source, e.ReportingInstance = r.source, r.source.Host
		e.FirstTimestamp, e.LastTimestamp, e.Count = now, now, 1
	})
}

// maxNote is the maximum length in bytes of a message of an event with an eventTime.
const maxNote = 1024

// Action records that action was performed or attempted on obj at a time, in the form
// of events.k8s.io/v1: with eventTime and series in place of first and last
// timestamps and a count. kubectl describe sorts such events before all others.
func (r *Recorder) Action(obj scheme.Object, at time.Time, eventType, reason, action, message string) {
	if len(message) > maxNote {
		message = strings.ToValidUTF8(message[:maxNote], "")
	}
	r.put(obj, at, func(e *corev1.Event) {
		e.Type, e.Reason, e.Message, e.Action = eventType, reason, message, action
		e.EventTime = metav1.NewMicroTime(at)
		e.ReportingInstance = cmp.Or(r.source.Host, r.source.Component)
	})
}

// put queues the event that fill completes. The event's name contains the time at.
func (r *Recorder) put(obj scheme.Object, at time.Time, fill func(*corev1.Event)) {
	if r == nil {
		return
	}
	gvk, err := r.scheme.GVKOf(obj)
	if err != nil {
		r.drop("the object has no kind", obj.GetName(), err)
		return
	}
	namespace := obj.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: eventName(obj.GetName(), at)},
		InvolvedObject: corev1.ObjectReference{
			Kind: gvk.Kind, APIVersion: gvk.GroupVersion().String(),
			Namespace: obj.GetNamespace(), Name: obj.GetName(),
			UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
		},
		ReportingController: r.source.Component,
	}
	fill(e)
	select {
	case r.queue <- e:
	default:
		r.drop("the queue is full", e.Reason, nil)
	}
}

// maxName leaves room for the timestamp in an event's name.
const maxName = 253 - 17

func eventName(object string, at time.Time) string {
	return fmt.Sprintf("%.*s.%016x", maxName, object, at.UnixNano())
}

// Run writes events until ctx ends and returns nil. It must not run twice.
func (r *Recorder) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-r.queue:
			r.record(ctx, e)
		}
	}
}

// record writes an event. It retries while the server is unreachable, up to maxTries.
func (r *Recorder) record(ctx context.Context, e *corev1.Event) {
	known, ok := r.correlate.observe(e)
	if !ok {
		r.drop("the object has too many", e.Reason, nil)
		return
	}
	retry := backoff.Backoff{Initial: firstRetry, Max: lastRetry}
	for try := 1; ; try++ {
		err := r.write(ctx, known, try > 1)
		if err == nil || ctx.Err() != nil {
			return
		}
		if !mayHelp(err) || try == maxTries {
			r.drop("the server did not take it", e.Reason, err)
			return
		}
		if retry.Wait(ctx) != nil {
			return
		}
	}
}

// mayHelp reports whether a retry of the same write can succeed: always, unless the
// server refused the event itself.
func mayHelp(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		return true
	}
	code := status.Status().Code
	return code >= 500 || code == 429
}

// write stores a series: the first write creates the object, later ones patch its
// count. again reports that an earlier attempt may have succeeded.
func (r *Recorder) write(ctx context.Context, s *series, again bool) error {
	events := r.events.In(s.event.Namespace)
	if s.stored {
		patch, err := json.Marshal(s.repetition())
		if err != nil {
			return err
		}
		_, err = events.Patch(ctx, s.event.Name, types.MergePatchType, patch)
		if !apierrors.IsNotFound(err) {
			return err
		}
		// The event expired on the server: continue the series in a new object.
		s.stored = false
		s.event.Name = eventName(s.event.InvolvedObject.Name, lastSeen(s.event))
	}
	_, err := events.Create(ctx, s.event)
	for at, n := lastSeen(s.event), 1; apierrors.IsAlreadyExists(err) && !again && n < maxTries; n++ {
		// Another recorder had an event about the object at the same time.
		s.event.Name = eventName(s.event.InvolvedObject.Name, at.Add(time.Duration(n)))
		_, err = events.Create(ctx, s.event)
	}
	if err == nil || apierrors.IsAlreadyExists(err) { // exists: an earlier attempt succeeded
		s.stored = true
		return nil
	}
	return err
}

// drop counts and logs an event that is not written.
func (r *Recorder) drop(why, reason string, err error) {
	r.dropped.Add(1)
	r.log.Debug("event dropped", "why", why, "reason", reason, "error", err)
}
