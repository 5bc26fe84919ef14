package horizontalpodautoscaler

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/conditions"
)

var (
	now  = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	long = now.Add(-time.Hour)
)

// change changes a view: a target of three ready pods that request one CPU each, between 1
// and 10 replicas.
type change func(*view)

func viewOf(changes ...change) *view {
	v := &view{
		HorizontalPodAutoscaler: &autoscalingv2.HorizontalPodAutoscaler{}, Options: Defaults(), now: now,
		scale: &autoscalingv1.Scale{},
	}
	v.Namespace, v.Generation, v.Spec.MaxReplicas = "ns", 7, 10
	of(3)(v)
	for _, f := range changes {
		f(v)
	}
	return v
}

// of gives the target that many ready pods, and its scale the same number.
func of(n int) change {
	return func(v *view) {
		v.pods = nil
		for i := range n {
			v.pods = append(v.pods, podOf(i))
		}
		v.scale.Spec.Replicas, v.scale.Status.Replicas = int32(n), int32(n)
	}
}

func podOf(i int) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name = fmt.Sprintf("p%d", i)
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
	}}}
	p.Status.Phase, p.Status.StartTime = corev1.PodRunning, new(metav1.NewTime(long))
	ready(corev1.ConditionTrue, long.Add(time.Minute))(p)
	return p
}

func ready(s corev1.ConditionStatus, since time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: s, LastTransitionTime: metav1.NewTime(since)}}
	}
}

func started(ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.StartTime = new(metav1.NewTime(now.Add(-ago))) }
}

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func deleted(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(now)) }

// pod changes one pod.
func pod(i int, changes ...func(*corev1.Pod)) change {
	return func(v *view) {
		for _, f := range changes {
			f(v.pods[i])
		}
	}
}

const absent = -1

// samplesOf returns the samples of pods, in thousandths; absent: none.
func samplesOf(milli []int64) map[string]sample {
	out := map[string]sample{}
	for i, m := range milli {
		if m != absent {
			out[fmt.Sprintf("p%d", i)] = sample{m, now.Add(-10 * time.Second), 30 * time.Second}
		}
	}
	return out
}

func add(m autoscalingv2.MetricSpec, r reading) change {
	return func(v *view) { v.Spec.Metrics, v.readings = append(v.Spec.Metrics, m), append(v.readings, r) }
}

// cpu adds a target of 50 % of the requested CPU, and what the pods use.
func cpu(milli ...int64) change { return cpuOf(50, milli...) }

func cpuOf(percent int32, milli ...int64) change {
	return add(autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
	}}, reading{samples: samplesOf(milli)})
}

func cpuAverage(target string, milli ...int64) change {
	return add(autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceCPU, Target: average(target),
	}}, reading{samples: samplesOf(milli)})
}

func containerCPU(container string, milli ...int64) change {
	return add(autoscalingv2.MetricSpec{Type: autoscalingv2.ContainerResourceMetricSourceType, ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
		Name: corev1.ResourceCPU, Container: container, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(50))},
	}}, reading{samples: samplesOf(milli)})
}

func value(q string) autoscalingv2.MetricTarget {
	return autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: new(resource.MustParse(q))}
}

func average(q string) autoscalingv2.MetricTarget {
	return autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: new(resource.MustParse(q))}
}

func podsMetric(target string, milli ...int64) change {
	return add(autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{
		Metric: autoscalingv2.MetricIdentifier{Name: "requests"}, Target: average(target),
	}}, reading{samples: samplesOf(milli)})
}

func object(t autoscalingv2.MetricTarget, milli int64) change {
	return add(autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{
		Metric: autoscalingv2.MetricIdentifier{Name: "hits"}, Target: t, DescribedObject: autoscalingv2.CrossVersionObjectReference{Kind: "Ingress", Name: "front"},
	}}, reading{value: milli})
}

func external(t autoscalingv2.MetricTarget, milli int64) change {
	return add(autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
		Metric: autoscalingv2.MetricIdentifier{Name: "queue"}, Target: t,
	}}, reading{value: milli})
}

// unread makes the reading of the last metric fail.
func unread(v *view) { v.readings[len(v.readings)-1] = reading{err: errors.New("gone")} }

func limits(least, most int32) change {
	return func(v *view) { v.Spec.MinReplicas, v.Spec.MaxReplicas = &least, most }
}

// recommended adds a recommendation to the history.
func recommended(n int32, ago time.Duration) change {
	return func(v *view) { v.history.recommended = append(v.history.recommended, entry{now.Add(-ago), n}) }
}

func changed(n int32, ago time.Duration) change {
	return func(v *view) { v.history.changed = append(v.history.changed, entry{now.Add(-ago), n}) }
}

func rules(window int32, choice autoscalingv2.ScalingPolicySelect, policies ...autoscalingv2.HPAScalingPolicy) *autoscalingv2.HPAScalingRules {
	return &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &window, SelectPolicy: &choice, Policies: policies}
}

func byPods(n, seconds int32) autoscalingv2.HPAScalingPolicy {
	return autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: n, PeriodSeconds: seconds}
}

func byPercent(n, seconds int32) autoscalingv2.HPAScalingPolicy {
	return autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: n, PeriodSeconds: seconds}
}

// up and down set one side of the behavior; the other has the API's defaults.
func up(r *autoscalingv2.HPAScalingRules) change {
	return func(v *view) {
		v.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: r, ScaleDown: rules(300, autoscalingv2.MaxChangePolicySelect, byPercent(100, 15))}
	}
}

func down(r *autoscalingv2.HPAScalingRules) change {
	return func(v *view) {
		v.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules(0, autoscalingv2.MaxChangePolicySelect, byPods(4, 15), byPercent(100, 15)), ScaleDown: r}
	}
}

func tolerating(q string, r *autoscalingv2.HPAScalingRules) *autoscalingv2.HPAScalingRules {
	r.Tolerance = new(resource.MustParse(q))
	return r
}

// text describes an outcome: the replicas before and after, and the reasons.
func text(v *view, o outcome) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d→%d", v.scale.Spec.Replicas, o.replicas)
	if o.replicas != v.scale.Spec.Replicas {
		fmt.Fprintf(&b, " (%s)", o.reason)
	}
	for _, t := range []autoscalingv2.HorizontalPodAutoscalerConditionType{autoscalingv2.AbleToScale, autoscalingv2.ScalingActive, autoscalingv2.ScalingLimited} {
		if c := conditions.Find(o.status.Conditions, t); c != nil {
			fmt.Fprintf(&b, " %s=%s", c.Reason, c.Status[:1])
		}
	}
	return b.String()
}

const (
	fits   = " ReadyForNewScale=T ValidMetricFound=T DesiredWithinRange=F"
	above  = " (cpu resource utilization (percentage of request) above target)"
	below  = " (All metrics below target)"
	failed = " SucceededGetScale=T FailedGetResourceMetric=F"
)

func TestDecide(t *testing.T) {
	for name, row := range map[string]struct {
		reason string
		view   *view
		want   string
	}{
		"AtTheTarget": {"half of the request is used, as wanted",
			viewOf(cpu(500, 500, 500)), "3→3" + fits},
		"AboveTheTarget": {"twice the target needs twice the pods",
			viewOf(cpu(1000, 1000, 1000)), "3→6" + above + fits},
		"BelowTheTarget": {"a fifth of the target needs a fifth of the pods, rounded up",
			viewOf(cpu(100, 100, 100)), "3→1" + below + fits},
		"WithinTheTolerance": {"54 % is less than a tenth above 50 %",
			viewOf(cpu(540, 540, 540)), "3→3" + fits},
		"BeyondTheTolerance": {"56 % is not; 3.36 pods are 4",
			viewOf(cpu(560, 560, 560)), "3→4" + above + fits},
		"AverageValue": {"an amount needs no requests",
			viewOf(cpuAverage("250m", 500, 500, 500), pod(0, func(p *corev1.Pod) { p.Spec.Containers[0].Resources = corev1.ResourceRequirements{} })),
			"3→6 (cpu resource above target)" + fits},

		"MissingWhileShrinking": {"a pod without a sample counts with its whole request: 32 % on average",
			viewOf(of(4), cpu(100, 100, 100, absent)), "4→3" + below + fits},
		"MissingWhileShrinkingAboveAll": {"or with the target if that is more: 125 % on average of 200 %",
			viewOf(of(4), cpuOf(200, 1000, 1000, 1000, absent)), "4→3" + below + fits},
		"MissingWhileGrowing": {"a pod without a sample counts with nothing: 75 % on average",
			viewOf(of(4), cpu(1000, 1000, 1000, absent)), "4→6" + above + fits},
		"MissingTurnsTheDirection": {"with the missing pod at nothing the others are below the target, so nothing changes",
			viewOf(of(2), cpu(800, absent)), "2→2" + fits},
		"MissingAtTheTarget": {"nothing is assumed where the others are at the target",
			viewOf(of(3), cpu(500, 500, absent)), "3→3" + fits},
		"MissingAmount": {"a pod without a sample counts with the target while shrinking",
			viewOf(of(4), podsMetric("10", 2000, 2000, 2000, absent)), "4→2" + below + fits},

		"PendingWhileGrowing": {"a pod that has not started counts with nothing: 75 %",
			viewOf(of(4), cpu(1000, 1000, 1000, absent), pod(3, phase(corev1.PodPending))), "4→6" + above + fits},
		"PendingWhileShrinking": {"and not at all while shrinking: a fifth of three pods",
			viewOf(of(4), cpu(100, 100, 100, absent), pod(3, phase(corev1.PodPending))), "4→1" + below + fits},
		"StartingPod": {"a pod that started a minute ago is not ready: its CPU is that of its start",
			viewOf(cpu(500, 500, 1000), pod(2, started(time.Minute), ready(corev1.ConditionFalse, now.Add(-time.Minute)))), "3→3" + fits},
		"JustReady": {"the sample was taken over a window that began before the pod was ready",
			viewOf(cpu(500, 500, 1000), pod(2, started(time.Minute), ready(corev1.ConditionTrue, now.Add(-35*time.Second)))), "3→3" + fits},
		"ReadyForAWindow": {"the whole window lies after the pod was ready: 66 %",
			viewOf(cpu(500, 500, 1000), pod(2, started(time.Minute), ready(corev1.ConditionTrue, now.Add(-45*time.Second)))), "3→4" + above + fits},
		"NeverReady": {"after the initialization period, a pod that was never ready does not count",
			viewOf(cpu(500, 500, 1000), pod(2, ready(corev1.ConditionFalse, long.Add(10*time.Second)))), "3→3" + fits},
		"NoLongerReady": {"a pod that was ready once counts although it is not now: it may be overloaded",
			viewOf(cpu(500, 500, 1000), pod(2, ready(corev1.ConditionFalse, now.Add(-time.Minute)))), "3→4" + above + fits},
		"ReadinessOfOtherMetrics": {"readiness matters only for CPU",
			viewOf(podsMetric("10", 20000, 20000, 20000), pod(2, ready(corev1.ConditionFalse, long))), "3→6 (pods metric requests above target)" + fits},
		"DeletedAndFailed": {"pods that are deleted or have failed do not count, whatever they use",
			viewOf(of(5), cpu(500, 500, 500, 5000, 5000), pod(3, deleted), pod(4, phase(corev1.PodFailed))), "5→5" + fits},

		"NoRequest": {"a percentage of nothing cannot be computed",
			viewOf(cpu(500, 500, 500), pod(1, func(p *corev1.Pod) { p.Spec.Containers[0].Resources = corev1.ResourceRequirements{} })), "3→3" + failed},
		"NoPods":     {"there is nothing to compute an average of", viewOf(cpu(), func(v *view) { v.pods = nil }), "3→3" + failed},
		"NoSamples":  {"all pods are without a sample", viewOf(cpu(absent, absent, absent)), "3→3" + failed},
		"NotRead":    {"the API of metrics fails", viewOf(cpu(500, 500, 500), unread), "3→3" + failed},
		"NoSelector": {"the scale names no pods", viewOf(cpu(), func(v *view) { v.selector = &refusal{reason: "InvalidSelector"} }), "3→3 SucceededGetScale=T InvalidSelector=F"},

		"Container": {"only the named container counts", viewOf(containerCPU("side", 100, 100, 100), func(v *view) {
			for _, p := range v.pods {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "side", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}}})
			}
		}), "3→6 (cpu container resource utilization (percentage of request) above target)" + fits},
		"Sidecar": {"a restartable init container runs as long as the pod: its request counts", viewOf(cpu(1000, 1000, 1000), func(v *view) {
			for _, p := range v.pods {
				p.Spec.InitContainers = []corev1.Container{{Name: "proxy", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), Resources: p.Spec.Containers[0].Resources}, {Name: "init"}}
			}
		}), "3→3" + fits},
		"PodLevelRequest": {"the request of the pod stands for those of its containers", viewOf(cpu(1000, 1000, 1000), func(v *view) {
			for _, p := range v.pods {
				p.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
				p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}
			}
		}), "3→3" + fits},

		"Pods":            {"the average over the pods", viewOf(podsMetric("10", 20000, 10000, 15000)), "3→5 (pods metric requests above target)" + fits},
		"Object":          {"the value of an object, for the pods that are ready", viewOf(object(value("100"), 150000)), "3→5 (Ingress metric hits above target)" + fits},
		"ObjectOfUnready": {"pods that are not ready do not share the value", viewOf(object(value("100"), 200000), pod(0, ready(corev1.ConditionFalse, now))), "3→4 (Ingress metric hits above target)" + fits},
		"ObjectPerPod":    {"each replica has a share of 50", viewOf(object(average("50"), 290000)), "3→6 (Ingress metric hits above target)" + fits},
		"ObjectPerPodOK":  {"a share of 51 is within the tolerance", viewOf(object(average("50"), 153000)), "3→3" + fits},
		"External":        {"a value outside of the cluster", viewOf(external(value("100"), 50000)), "3→2" + below + fits},
		"ExternalPerPod":  {"each replica takes 10 of the queue", viewOf(external(average("10"), 55000)), "3→6 (external metric queue(nil) above target)" + fits},

		"LargestWins":        {"the metric that asks for the most replicas decides", viewOf(cpu(600, 600, 600), podsMetric("10", 20000, 20000, 20000)), "3→6 (pods metric requests above target)" + fits},
		"OneFailsOneGrows":   {"a metric that grows may be followed without the others", viewOf(cpu(1), unread, podsMetric("10", 20000, 20000, 20000)), "3→6 (pods metric requests above target)" + fits},
		"OneFailsOneShrinks": {"the metric that failed might need the pods", viewOf(cpu(1), unread, podsMetric("10", 1000, 1000, 1000)), "3→3" + failed},

		"Maximum":       {"no more than the maximum", viewOf(of(6), cpu(1000, 1000, 1000, 1000, 1000, 1000)), "6→10" + above + " ReadyForNewScale=T ValidMetricFound=T TooManyReplicas=T"},
		"Minimum":       {"no fewer than the minimum", viewOf(cpu(100, 100, 100), limits(2, 10)), "3→2" + below + " ReadyForNewScale=T ValidMetricFound=T TooFewReplicas=T"},
		"GrowsAtMost":   {"without a behavior, the scale doubles at most, or grows to four", viewOf(of(1), cpu(5000)), "1→4" + above + " ReadyForNewScale=T ValidMetricFound=T ScaleUpLimit=T"},
		"Disabled":      {"zero replicas switch the autoscaler off", viewOf(of(0), cpu()), "0→0 SucceededGetScale=T ScalingDisabled=F"},
		"AboveMaximum":  {"the limits hold without metrics", viewOf(of(12), cpu(), unread), "12→10 (Current number of replicas above Spec.MaxReplicas) SucceededGetScale=T"},
		"BelowMinimum":  {"the limits hold without metrics", viewOf(of(2), cpu(), unread, limits(3, 10)), "2→3 (Current number of replicas below Spec.MinReplicas) SucceededGetScale=T"},
		"StaysAtZeroes": {"a value of zero still leaves the minimum", viewOf(external(value("100"), 0)), "3→1" + below + " ReadyForNewScale=T ValidMetricFound=T TooFewReplicas=T"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := text(row.view, decide(row.view)); got != row.want {
				t.Errorf("%s\n got %s\nwant %s", row.reason, got, row.want)
			}
		})
	}
}

func TestDecideOverTime(t *testing.T) {
	const (
		most, least, none = autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect, autoscalingv2.DisabledPolicySelect
		shrinks           = " ScaleDownStabilized=T ValidMetricFound=T DesiredWithinRange=F"
	)
	for name, row := range map[string]struct {
		reason string
		view   *view
		want   string
	}{
		"RecentlyMore":    {"four minutes ago three replicas were needed", viewOf(cpu(100, 100, 100), recommended(3, 4*time.Minute)), "3→3" + shrinks},
		"SomewhatMore":    {"the highest of the last five minutes holds", viewOf(cpu(100, 100, 100), recommended(3, 6*time.Minute), recommended(2, time.Minute)), "3→2" + below + shrinks},
		"LongAgoMore":     {"what was needed before the window does not matter", viewOf(cpu(100, 100, 100), recommended(3, 6*time.Minute)), "3→1" + below + fits},
		"GrowsAtOnce":     {"a lower recommendation of late does not hold back growth", viewOf(cpu(1000, 1000, 1000), recommended(1, time.Second)), "3→6" + above + fits},
		"HandReduced":     {"a scale that was reduced by hand returns to a recent recommendation", viewOf(cpu(500, 500, 500), recommended(6, time.Minute)), "3→6 (a recent recommendation was higher)" + shrinks},
		"WindowUp":        {"growth must hold for the window", viewOf(cpu(1000, 1000, 1000), up(rules(60, most, byPods(9, 15))), recommended(4, 30*time.Second)), "3→4" + above + " ScaleUpStabilized=T ValidMetricFound=T DesiredWithinRange=F"},
		"WindowDown":      {"a window of its own is used instead of the default", viewOf(cpu(100, 100, 100), down(rules(60, most, byPercent(100, 15))), recommended(3, 90*time.Second)), "3→1" + below + fits},
		"NoWindowDown":    {"the default is used where the behavior has none", viewOf(cpu(100, 100, 100), down(&autoscalingv2.HPAScalingRules{Policies: []autoscalingv2.HPAScalingPolicy{byPercent(100, 15)}}), recommended(3, 90*time.Second)), "3→3" + shrinks},
		"PodsUp":          {"one pod a period", viewOf(cpu(1000, 1000, 1000), up(rules(0, most, byPods(1, 60)))), "3→4" + above + " ReadyForNewScale=T ValidMetricFound=T ScaleUpLimit=T"},
		"PodsUpUsed":      {"the pod of this period was added already", viewOf(cpu(1000, 1000, 1000), up(rules(0, most, byPods(1, 60))), changed(1, 30*time.Second)), "3→3 ReadyForNewScale=T ValidMetricFound=T ScaleUpLimit=T"},
		"PodsUpReturned":  {"what was removed in the period may be added again", viewOf(cpu(1000, 1000, 1000), up(rules(0, most, byPods(1, 60))), changed(-2, 30*time.Second)), "3→6" + above + fits},
		"PodsUpLastTime":  {"the change was in an earlier period", viewOf(cpu(1000, 1000, 1000), up(rules(0, most, byPods(1, 60))), changed(1, 90*time.Second)), "3→4" + above + " ReadyForNewScale=T ValidMetricFound=T ScaleUpLimit=T"},
		"PercentUp":       {"half as many again, rounded up", viewOf(cpu(1000, 1000, 1000), up(rules(0, most, byPercent(50, 60)))), "3→5" + above + " ReadyForNewScale=T ValidMetricFound=T ScaleUpLimit=T"},
		"MostUp":          {"the policy that allows more", viewOf(cpu(1000, 1000, 1000), up(rules(0, most, byPods(1, 60), byPercent(50, 60)))), "3→5" + above + " ReadyForNewScale=T ValidMetricFound=T ScaleUpLimit=T"},
		"LeastUp":         {"the policy that allows less", viewOf(cpu(1000, 1000, 1000), up(rules(0, least, byPods(1, 60), byPercent(50, 60)))), "3→4" + above + " ReadyForNewScale=T ValidMetricFound=T ScaleUpLimit=T"},
		"NotUp":           {"growth is switched off", viewOf(cpu(1000, 1000, 1000), up(rules(0, none, byPods(1, 60)))), "3→3 ReadyForNewScale=T ValidMetricFound=T ScaleUpLimit=T"},
		"NotUpMayShrink":  {"and shrinking is not", viewOf(cpu(100, 100, 100), up(rules(0, none, byPods(1, 60)))), "3→1" + below + fits},
		"DefaultUp":       {"four pods or twice as many in 15 seconds", viewOf(of(1), cpu(9000), down(rules(300, most, byPercent(100, 15)))), "1→5" + above + " ReadyForNewScale=T ValidMetricFound=T ScaleUpLimit=T"},
		"PodsDown":        {"one pod a period", viewOf(cpu(100, 100, 100), down(rules(0, most, byPods(1, 60)))), "3→2" + below + " ReadyForNewScale=T ValidMetricFound=T ScaleDownLimit=T"},
		"PodsDownUsed":    {"the pod of this period was removed already", viewOf(cpu(100, 100, 100), down(rules(0, most, byPods(1, 60))), changed(-1, 30*time.Second)), "3→3 ReadyForNewScale=T ValidMetricFound=T ScaleDownLimit=T"},
		"PercentDown":     {"a tenth of ten", viewOf(of(10), cpu(10, 10, 10, 10, 10, 10, 10, 10, 10, 10), down(rules(0, most, byPercent(10, 60)))), "10→9" + below + " ReadyForNewScale=T ValidMetricFound=T ScaleDownLimit=T"},
		"LeastDown":       {"the policy that removes less", viewOf(of(10), cpu(10, 10, 10, 10, 10, 10, 10, 10, 10, 10), down(rules(0, least, byPercent(50, 60), byPods(2, 60)))), "10→8" + below + " ReadyForNewScale=T ValidMetricFound=T ScaleDownLimit=T"},
		"MostDown":        {"the policy that removes more", viewOf(of(10), cpu(10, 10, 10, 10, 10, 10, 10, 10, 10, 10), down(rules(0, most, byPercent(50, 60), byPods(2, 60)))), "10→5" + below + " ReadyForNewScale=T ValidMetricFound=T ScaleDownLimit=T"},
		"NotDown":         {"shrinking is switched off", viewOf(cpu(100, 100, 100), down(rules(0, none, byPods(1, 60)))), "3→3 ReadyForNewScale=T ValidMetricFound=T ScaleDownLimit=T"},
		"ToleranceUp":     {"56 % is within a fifth of 50 %", viewOf(cpu(560, 560, 560), up(tolerating("200m", rules(0, most, byPods(4, 15))))), "3→3" + fits},
		"ToleranceUpOnly": {"the default tolerance holds for shrinking", viewOf(up(tolerating("900m", rules(0, most, byPods(4, 15)))), of(9), cpu(440, 440, 440, 440, 440, 440, 440, 440, 440)), "9→8" + below + fits},
		"ToleranceDown":   {"30 % is within half of 50 %", viewOf(cpu(300, 300, 300), down(tolerating("500m", rules(0, most, byPercent(100, 15))))), "3→3" + fits},
		"ToleranceOfZero": {"51 % is above 50 %", viewOf(cpu(510, 510, 510), up(tolerating("0", rules(0, most, byPods(4, 15))))), "3→4" + above + fits},
	} {
		t.Run(name, func(t *testing.T) {
			if got := text(row.view, decide(row.view)); got != row.want {
				t.Errorf("%s\n got %s\nwant %s", row.reason, got, row.want)
			}
		})
	}
}
