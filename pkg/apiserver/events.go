package apiserver

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// forgetEvery is the interval between deletions of old Events.
const forgetEvery = time.Minute

// forgetEvents deletes Events that have not recurred for EventTTL. It blocks
// until ctx ends. Several servers may run it at once: each deletion requires
// the resource version that it has read.
func (s *Server) forgetEvents(ctx context.Context) {
	if s.cfg.EventTTL <= 0 {
		return
	}
	tick := time.NewTicker(forgetEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.deleteOldEvents(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.Warn("event cleanup failed", "err", err)
		}
	}
}

// deleteOldEvents deletes the Events that are older than EventTTL now. An Event
// that changes or disappears meanwhile is skipped.
func (s *Server) deleteOldEvents(ctx context.Context) error {
	events := corev1.SchemeGroupVersion.WithResource("events")
	all, err := s.api.List(ctx, events, "")
	if err != nil {
		return err
	}
	before := s.cfg.Now().Add(-s.cfg.EventTTL)
	for _, obj := range all {
		e := obj.(*corev1.Event)
		if lastSeen(e).After(before) {
			continue
		}
		unchanged := metav1.Preconditions{UID: &e.UID, ResourceVersion: &e.ResourceVersion}
		err := s.api.Delete(ctx, events, e.Namespace, e.Name, &metav1.DeleteOptions{Preconditions: &unchanged})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}

// lastSeen returns the time of the event's last occurrence.
func lastSeen(e *corev1.Event) time.Time {
	last := e.CreationTimestamp.Time
	for _, t := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time} {
		if t.After(last) {
			last = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	return last
}
