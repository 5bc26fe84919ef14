package probes

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/kubelet/images"
)

// Kind says which of a container's probes it is.
type Kind string

// The kinds of probe, as events and metrics spell them.
const (
	Readiness Kind = "Readiness"
	Liveness  Kind = "Liveness"
	Startup   Kind = "Startup"
)

// Outcome is what one question brought.
type Outcome int

// Success, and two sorts of no: Failure is the container's, Unknown is ours
// (the question could not be asked) and counts for nothing. Warning is a success
// with something to say.
const (
	Success Outcome = iota
	Warning
	Failure
	Unknown
)

// Result is an outcome and its text.
type Result struct {
	Outcome Outcome
	Output  string
}

// tries bounds how often a question that could not be asked is asked again at once.
const tries = 3

// rhythm asks one probe's question in its period and counts the answers.
type rhythm struct {
	set    *Set
	p      *probed
	kind   Kind
	spec   *corev1.Probe
	target Target

	last Outcome
	row  int32 // how often in a row the last outcome came
}

func (r *rhythm) run(ctx context.Context) {
	if r.kind != Startup {
		select {
		case <-r.p.up:
		case <-ctx.Done():
			return
		}
	}
	period := seconds(r.spec.PeriodSeconds, 10)
	first := time.Until(r.target.Started.Add(seconds(r.spec.InitialDelaySeconds, 0)))
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

// ask asks once; it is true when nothing more is to be asked.
func (r *rhythm) ask(ctx context.Context) (done bool) {
	pod := r.set.pod(r.p)
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
	r.tell(pod, res)
	r.set.cfg.Metrics.count(r.kind, pod, r.target.Container.Name, res.Outcome)
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
	// A started container is not asked again, nor one that is to be killed.
	return r.kind == Startup || r.kind == Liveness && !good
}

func (r *rhythm) tell(pod *corev1.Pod, res Result) {
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
