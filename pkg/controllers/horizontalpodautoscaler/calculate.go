package horizontalpodautoscaler

import (
	"errors"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/conditions"
)

// tolerances are how far a metric may be from its target without a change of the scale, as
// fractions of the target.
type tolerances struct{ down, up float64 }

func (t tolerances) within(ratio float64) bool { return 1-t.down <= ratio && ratio <= 1+t.up }

// groups are pods by what their samples are worth.
type groups struct {
	ready   int      // pods whose samples count
	unready []string // not started yet, or their sample is of their start
	missing []string // without a sample
	values  map[string]int64
}

// group sorts the pods by their samples of a metric. Samples of pods that are deleted, have
// failed or are not ready are left out.
func (v *view) group(samples map[string]sample, cpu bool) groups {
	g := groups{values: map[string]int64{}}
	for _, p := range v.pods {
		s, ok := samples[p.Name]
		switch {
		case p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed:
		case p.Status.Phase == corev1.PodPending:
			g.unready = append(g.unready, p.Name)
		case !ok:
			g.missing = append(g.missing, p.Name)
		case cpu && v.starting(p, s):
			g.unready = append(g.unready, p.Name)
		default:
			g.ready++
			g.values[p.Name] = s.milli
		}
	}
	return g
}

// starting reports whether a sample of CPU shows the start of a pod rather than its work.
func (v *view) starting(p *corev1.Pod, s sample) bool {
	ready := conditions.Find(p.Status.Conditions, corev1.PodReady)
	if ready == nil || p.Status.StartTime == nil {
		return true
	}
	started, changed := p.Status.StartTime.Time, ready.LastTransitionTime.Time
	unready := ready.Status == corev1.ConditionFalse
	if started.Add(v.CPUInitializationPeriod).After(v.now) {
		return unready || s.at.Before(changed.Add(s.window))
	}
	return unready && started.Add(v.InitialReadinessDelay).After(changed) // it has never been ready
}

// usage is how much pods use of something, beside the target.
type usage struct {
	ratio   float64 // 1: exactly the target
	percent int32   // of the requests, if the target is a percentage
	average int64   // per pod, in thousandths
}

// target is what each pod should use on average.
type target interface {
	// of compares values with the target.
	of(values map[string]int64) (usage, error)
	// full is what a pod without a sample is taken to use when the others use too little.
	full(pod string) int64
}

// amount is a target in thousandths.
type amount int64

func (a amount) of(values map[string]int64) (usage, error) {
	var sum int64
	for _, v := range values {
		sum += v
	}
	average := sum / int64(len(values))
	return usage{ratio: float64(average) / float64(a), average: average}, nil
}

func (a amount) full(string) int64 { return int64(a) }

// percentage is a target in percent of what pods request.
type percentage struct {
	target   int32
	requests map[string]int64 // in thousandths, by pod
}

func (t percentage) of(values map[string]int64) (usage, error) {
	var sum, requested int64
	for pod, v := range values {
		sum += v
		requested += t.requests[pod]
	}
	if requested == 0 {
		return usage{}, errors.New("no metrics returned matched known pods")
	}
	percent := int32(min(float64(sum)*100/float64(requested), math.MaxInt32))
	return usage{float64(percent) / float64(t.target), percent, sum / int64(len(values))}, nil
}

func (t percentage) full(pod string) int64 { return t.requests[pod] * int64(max(100, t.target)) / 100 }

// perPod returns how many replicas would bring the pods to the target.
//
// Pods without a sample dampen a change: they are taken to use all they may if the scale is
// to shrink, and nothing if it is to grow. If even then the direction is another one, or the
// change is within the tolerance, the scale stays.
func (v *view) perPod(samples map[string]sample, cpu bool, t target) (int32, usage, error) {
	current := v.scale.Spec.Replicas
	if len(v.pods) == 0 {
		return 0, usage{}, errNoPods
	}
	g := v.group(samples, cpu)
	if len(g.values) == 0 {
		return 0, usage{}, errors.New("did not receive metrics for targeted pods (pods might be unready)")
	}
	u, err := t.of(g.values)
	if err != nil {
		return 0, usage{}, err
	}
	tolerated := v.tolerances()
	starting := len(g.unready) > 0 && u.ratio > 1
	if !starting && len(g.missing) == 0 {
		if tolerated.within(u.ratio) {
			return current, u, nil
		}
		return ceil(u.ratio * float64(g.ready)), u, nil
	}
	assume(&g, u.ratio, t)
	cautious, err := t.of(g.values)
	if err != nil {
		return 0, u, err
	}
	if tolerated.within(cautious.ratio) || (u.ratio < 1) != (cautious.ratio < 1) {
		return current, u, nil
	}
	replicas := ceil(cautious.ratio * float64(len(g.values)))
	if cautious.ratio < 1 && replicas > current || cautious.ratio > 1 && replicas < current {
		return current, u, nil
	}
	return replicas, u, nil
}

// assume adds values for the pods that have none that counts.
func assume(g *groups, ratio float64, t target) {
	for _, pod := range g.missing {
		switch {
		case ratio < 1:
			g.values[pod] = t.full(pod)
		case ratio > 1:
			g.values[pod] = 0
		}
	}
	if ratio > 1 {
		for _, pod := range g.unready {
			g.values[pod] = 0
		}
	}
}

var errNoPods = errors.New("no pods returned by selector while calculating replica count")

// total returns how many replicas would bring a value that all pods share to its target.
func (v *view) total(value, target int64) (int32, error) {
	ratio, current := float64(value)/float64(target), v.scale.Spec.Replicas
	switch {
	case current == 0:
		return ceil(ratio), nil
	case v.tolerances().within(ratio):
		return current, nil
	case len(v.pods) == 0:
		return 0, errNoPods
	}
	ready := 0
	for _, p := range v.pods {
		if p.Status.Phase == corev1.PodRunning && conditions.IsTrue(p.Status.Conditions, corev1.PodReady) {
			ready++
		}
	}
	return ceil(ratio * float64(ready)), nil
}

// shared returns how many replicas would bring each one's share of a value to its target,
// and the share now.
func (v *view) shared(value, target int64) (replicas int32, share int64) {
	replicas = v.scale.Status.Replicas
	if ratio := float64(value) / (float64(target) * float64(replicas)); replicas == 0 || !v.tolerances().within(ratio) {
		replicas = ceil(float64(value) / float64(target))
	}
	return replicas, int64(math.Ceil(float64(value) / float64(max(1, v.scale.Status.Replicas))))
}

// tolerances returns the tolerances of the autoscaler, or else the default.
func (v *view) tolerances() tolerances {
	t := tolerances{v.Tolerance, v.Tolerance}
	if b := v.Spec.Behavior; b != nil {
		if b.ScaleDown != nil && b.ScaleDown.Tolerance != nil {
			t.down = b.ScaleDown.Tolerance.AsApproximateFloat64()
		}
		if b.ScaleUp != nil && b.ScaleUp.Tolerance != nil {
			t.up = b.ScaleUp.Tolerance.AsApproximateFloat64()
		}
	}
	return t
}

// ceil rounds up to a number of replicas.
func ceil(x float64) int32 { return int32(min(math.Ceil(x), math.MaxInt32)) }

// window returns a duration of whole seconds, or fallback.
func window(seconds *int32, fallback time.Duration) time.Duration {
	if seconds == nil {
		return fallback
	}
	return time.Duration(*seconds) * time.Second
}
