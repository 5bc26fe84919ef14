package framework

import (
	"errors"
	"time"
)

// Extension points that are measured, with upstream's names. PreFilter and PreScore, which run
// once for all pods of a shape, count with Filter.
const (
	Filter     = "Filter" // all nodes
	PostFilter = "PostFilter"
	Score      = "Score" // all nodes that fit
	Reserve    = "Reserve"
	Permit     = "Permit"
	PreBind    = "PreBind"
	Bind       = "Bind" // the daemon's request, or an extender's
	PostBind   = "PostBind"
)

// Points returns all extension points that are measured.
func Points() []string {
	return []string{Filter, PostFilter, Score, Reserve, Permit, PreBind, Bind, PostBind}
}

// Results of an extension point, with upstream's names.
const (
	ResultSuccess       = "Success"
	ResultUnschedulable = "Unschedulable"
	ResultWait          = "Wait"
	ResultError         = "Error"
)

// Observer is told how long the plugins of an extension point took for a pod. It must be fast and
// safe for concurrent use.
type Observer func(point, result string, took time.Duration)

// now returns the time if it is needed.
func (s *Scheduler) now() (t time.Time) {
	if s.Observe != nil {
		t = time.Now()
	}
	return t
}

func (s *Scheduler) took(point, result string, began time.Time) {
	if s.Observe != nil {
		s.Observe(point, result, time.Since(began))
	}
}

// Measure calls f, which runs an extension point, and tells the observer how long it took.
func (s *Scheduler) Measure(point string, f func() error) error {
	began := s.now()
	err := f()
	s.took(point, resultOf(err), began)
	return err
}

func resultOf(err error) string {
	switch {
	case err == nil:
		return ResultSuccess
	case errors.As(err, new(*LaterError)):
		return ResultWait
	}
	return ResultError
}
