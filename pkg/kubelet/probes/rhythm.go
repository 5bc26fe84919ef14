package probes

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/kubelet/images"
	"podium/pkg/wallclock"
)

// Kind is the type of a probe.
type Kind string

// The types of probes, as in events and metrics.
const (
	Readiness Kind = "Readiness"
	Liveness  Kind = "Liveness"
	Startup   Kind = "Startup"
)

// Outcome is the outcome of one check.
type Outcome int

// The outcomes. Warning is a success with a message. Failure is the container's;
// Unknown means that the kubelet could not run the check, and does not count.
const (
	Success Outcome = iota
	Warning
	Failure
	Unknown
)

// Result is the outcome of a check with its output.
type Result struct {
	Outcome Outcome
	Output  string
}

// tries is how often a check is tried at once while its outcome is Unknown.
const tries = 3

// rhythm runs one probe periodically and counts consecutive results. Only the
// goroutine of run uses it.
type rhythm struct {
	set    *Set
	p      *probed
	kind   Kind
	spec   *corev1.Probe
	target Target

	last Outcome
	row  int32 // number of consecutive results equal to last
}

// run runs the probe until it is finished or ctx ends. Liveness and readiness probes
// first wait until the container has started.
func (r *rhythm) run(ctx context.Context) {
	if r.kind != Startup {
		select {
		case <-r.p.up:
		case <-ctx.Done():
			return
		}
	}
	period := seconds(r.spec.PeriodSeconds, 10)
	started := wallclock.Anchor(r.target.Started, time.Now()) // else a clock that was set back delays the first check
	first := time.Until(started.Add(seconds(r.spec.InitialDelaySeconds, 0)))
	t := time.NewTimer(max(first, 0))
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		t.Reset(period)
		if r.ask(ctx) {
			return
		}
	}
}

func seconds(n, otherwise int32) time.Duration {
	if n <= 0 {
		n = otherwise
	}
	return time.Duration(n) * time.Second
}

// ask runs the check once. It returns true if the probe is finished.
func (r *rhythm) ask(ctx context.Context) (done bool) {
	pod, began := r.set.pod(r.p), time.Now()
	var res Result
	for range tries {
		res = r.set.cfg.Check.Check(ctx, pod, r.target.Container, r.target.ID, r.spec)
		if res.Outcome != Unknown || ctx.Err() != nil {
			break
		}
	}
	if ctx.Err() != nil {
		return true
	}
	r.recordResult(pod, res)
	r.set.cfg.Metrics.observe(r.kind, pod, r.target.Container.Name, res.Outcome, time.Since(began))
	if res.Outcome == Unknown {
		return false
	}
	good := res.Outcome != Failure
	outcome := Success
	if !good {
		outcome = Failure
	}
	if outcome == r.last {
		r.row++
	} else {
		r.last, r.row = outcome, 1
	}
	threshold := max(r.spec.SuccessThreshold, 1)
	if !good {
		threshold = r.spec.FailureThreshold
		if threshold <= 0 {
			threshold = 3
		}
	}
	if r.row < threshold {
		return false
	}
	r.set.report(r.p, r.kind, good)
	// A startup probe ends with its first verdict; a failed liveness probe kills
	// the container.
	return r.kind == Startup || r.kind == Liveness && !good
}

func (r *rhythm) recordResult(pod *corev1.Pod, res Result) {
	var reason, message string
	switch res.Outcome {
	case Success:
		return
	case Warning:
		reason, message = "ProbeWarning", fmt.Sprintf("%s probe warning: %s", r.kind, res.Output)
	case Failure:
		reason, message = "Unhealthy", fmt.Sprintf("%s probe failed: %s", r.kind, res.Output)
	case Unknown:
		reason, message = "Unhealthy", fmt.Sprintf("%s probe errored: %s", r.kind, res.Output)
	}
	r.set.cfg.Log.Debug("probe", "pod", pod.Namespace+"/"+pod.Name, "container", r.target.Container.Name, "message", message)
	r.set.cfg.Events.EventOn(pod, images.FieldPath(pod, r.target.Container.Name), corev1.EventTypeWarning, reason, message)
}
