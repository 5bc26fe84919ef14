package horizontalpodautoscaler

import (
	"errors"
	"fmt"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/conditions"
)

// view is what an autoscaler sees: the input of decide.
type view struct {
	*autoscalingv2.HorizontalPodAutoscaler
	Options
	now      time.Time
	scale    *autoscalingv1.Scale
	selector *refusal      // the selector of the scale cannot be used
	pods     []*corev1.Pod // that the scale selects
	readings []reading     // one for each metric of the spec
	history  history
}

// refusal says why a selector cannot be used: in an event and in a condition.
type refusal struct{ event, text, reason, message string }

// outcome is what decide wants done.
type outcome struct {
	replicas int32  // of the target; the current ones: no change
	reason   string // for a change
	status   autoscalingv2.HorizontalPodAutoscalerStatus
	events   []event

	recommended *int32     // to be added to the history
	proposals   []proposal // one for each metric that was looked at
	err         error      // some metrics failed
}

// event is a warning about the autoscaler.
type event struct{ reason, message string }

// least is the lower limit of replicas.
func (v *view) least() int32 {
	if n := v.Spec.MinReplicas; n != nil {
		return *n
	}
	return 1
}

// unavailable says why the scale must not follow metrics: it is switched off by a scale of
// zero, or it is outside of the limits. The second result is the scale to set, if any.
func (v *view) unavailable() (bool, int32, string) {
	switch current := v.scale.Spec.Replicas; {
	case current == 0 && v.least() != 0:
		return true, 0, ""
	case current > v.Spec.MaxReplicas:
		return true, v.Spec.MaxReplicas, "Current number of replicas above Spec.MaxReplicas"
	case current < v.least():
		return true, v.least(), "Current number of replicas below Spec.MinReplicas"
	}
	return false, 0, ""
}

// decide says how many replicas the target should have and what to report. It does no I/O.
func decide(v *view) outcome {
	o := outcome{replicas: v.scale.Spec.Replicas, status: *v.Status.DeepCopy()}
	o.status.ObservedGeneration = new(v.Generation)
	o.status.CurrentReplicas = v.scale.Spec.Replicas
	o.status.CurrentMetrics = nil
	o.set(v.now, autoscalingv2.AbleToScale, corev1.ConditionTrue, "SucceededGetScale", "the HPA controller was able to get the target's current scale")
	if fixed, replicas, reason := v.unavailable(); fixed {
		o.replicas, o.reason = replicas, reason
		if reason == "" {
			o.set(v.now, autoscalingv2.ScalingActive, corev1.ConditionFalse, "ScalingDisabled", "scaling is disabled since the replica count of the target is zero")
		}
		o.status.DesiredReplicas = replicas
		return o
	}
	wanted, metric, ok := v.byMetrics(&o)
	if !ok {
		return o
	}
	v.normalize(&o, wanted, metric)
	o.status.DesiredReplicas = o.replicas
	return o
}

// byMetrics returns the largest number of replicas that a metric asks for, and the metric. It
// returns false if the scale must not change: no metric has a value, or some have none and the
// others ask for fewer replicas.
func (v *view) byMetrics(o *outcome) (wanted int32, metric string, ok bool) {
	if v.selector != nil {
		o.warn(v.selector.event, v.selector.text)
		o.fail(v, v.selector.reason, v.selector.message, errors.New(v.selector.text))
		return 0, "", false
	}
	o.status.CurrentMetrics = make([]autoscalingv2.MetricStatus, len(v.Spec.Metrics))
	failed, found := 0, false
	var first proposal
	for i := range v.Spec.Metrics {
		p := v.propose(&v.Spec.Metrics[i], v.readings[i])
		o.proposals = append(o.proposals, p)
		if p.err != nil {
			o.warn(p.reason, p.err.Error())
			if failed++; failed == 1 {
				first = p
			}
			continue
		}
		o.status.CurrentMetrics[i] = p.status
		if !found || p.replicas > wanted {
			found, wanted, metric = true, p.replicas, p.name
		}
	}
	if failed > 0 {
		o.err = fmt.Errorf("invalid metrics (%d invalid out of %d), first error is: %s: %w", failed, len(v.Spec.Metrics), first.what, first.err)
	}
	if !found || failed > 0 && wanted < v.scale.Spec.Replicas {
		o.fail(v, first.reason, fmt.Sprintf("the HPA was unable to compute the replica count: %v", first.err), o.err)
		return 0, "", false
	}
	o.set(v.now, autoscalingv2.ScalingActive, corev1.ConditionTrue, "ValidMetricFound", "the HPA was able to successfully calculate a replica count from "+metric)
	return wanted, metric, true
}

// fail reports that no number of replicas can be computed.
func (o *outcome) fail(v *view, reason, message string, err error) {
	if err == nil {
		err = errors.New("no metrics are specified")
	}
	o.set(v.now, autoscalingv2.ScalingActive, corev1.ConditionFalse, reason, message)
	o.warn("FailedComputeMetricsReplicas", err.Error())
	o.err = err
}

// normalize sets the replicas to what the recent past and the limits allow of the wanted.
func (v *view) normalize(o *outcome, wanted int32, metric string) {
	o.recommended = &wanted
	current := v.scale.Spec.Replicas
	stable := v.stabilize(wanted)
	switch {
	case stable == wanted:
		o.set(v.now, autoscalingv2.AbleToScale, corev1.ConditionTrue, "ReadyForNewScale", "recommended size matches current size")
	case v.Spec.Behavior != nil && wanted >= current:
		o.set(v.now, autoscalingv2.AbleToScale, corev1.ConditionTrue, "ScaleUpStabilized", "recent recommendations were lower than current one, applying the lowest recent recommendation")
	default:
		o.set(v.now, autoscalingv2.AbleToScale, corev1.ConditionTrue, "ScaleDownStabilized", "recent recommendations were higher than current one, applying the highest recent recommendation")
	}
	o.replicas = stable
	status, l := corev1.ConditionFalse, limit{stable, "DesiredWithinRange", "the desired count is within the acceptable range"}
	if upper := v.upper(); stable > upper.replicas {
		status, l = corev1.ConditionTrue, upper
	} else if lower := v.lower(); stable < lower.replicas {
		status, l = corev1.ConditionTrue, lower
	}
	o.replicas = l.replicas
	o.set(v.now, autoscalingv2.ScalingLimited, status, l.reason, l.message)
	switch {
	case wanted > current:
		o.reason = metric + " above target"
	case wanted < current:
		o.reason = "All metrics below target"
	default:
		o.reason = "a recent recommendation was higher"
	}
}

func (o *outcome) set(now time.Time, t autoscalingv2.HorizontalPodAutoscalerConditionType, status corev1.ConditionStatus, reason, message string) {
	o.status.Conditions = conditions.Set(o.status.Conditions, autoscalingv2.HorizontalPodAutoscalerCondition{
		Type: t, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now),
	})
}

func (o *outcome) warn(reason, message string) { o.events = append(o.events, event{reason, message}) }
