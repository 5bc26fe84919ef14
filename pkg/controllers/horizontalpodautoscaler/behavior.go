package horizontalpodautoscaler

import (
	"math"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// history is what an autoscaler recommended and changed lately, oldest first.
type history struct {
	recommended []entry // numbers of replicas, before stabilization
	changed     []entry // replicas added (positive) and removed
}

type entry struct {
	at       time.Time
	replicas int32
}

// remembered is the longest period that a scaling policy may have.
const remembered = 30 * time.Minute

// note appends an entry, and drops those that are older than a duration.
func note(list []entry, e entry, keep time.Duration) []entry {
	old := 0
	for old < len(list) && list[old].at.Before(e.at.Add(-keep)) {
		old++
	}
	return append(list[old:len(list):len(list)], e)
}

// extremes returns the lowest recommendation of the window up and the highest of the window
// down, now's included.
func (h history) extremes(now entry, up, down time.Duration) (least, most int32) {
	least, most = now.replicas, now.replicas
	for _, e := range h.recommended {
		if e.at.After(now.at.Add(-up)) {
			least = min(least, e.replicas)
		}
		if e.at.After(now.at.Add(-down)) {
			most = max(most, e.replicas)
		}
	}
	return least, most
}

// before returns the number of replicas at the start of a period, if there are current now.
func (h history) before(current int32, now time.Time, period time.Duration) int32 {
	for _, e := range h.changed {
		if e.at.After(now.Add(-period)) {
			current -= e.replicas
		}
	}
	return current
}

// stabilize returns the recommendation that the recent ones allow.
func (v *view) stabilize(wanted int32) int32 {
	current, now := v.scale.Spec.Replicas, entry{v.now, wanted}
	b := v.Spec.Behavior
	if b == nil {
		_, most := v.history.extremes(now, 0, v.DownscaleStabilization)
		return most
	}
	least, most := v.history.extremes(now, v.upWindow(), v.downWindow())
	return min(max(current, least), most)
}

// upWindow and downWindow are how long a recommendation to grow, or to shrink, must hold.
func (v *view) upWindow() time.Duration {
	if b := v.Spec.Behavior; b != nil && b.ScaleUp != nil {
		return window(b.ScaleUp.StabilizationWindowSeconds, 0)
	}
	return 0
}

func (v *view) downWindow() time.Duration {
	if b := v.Spec.Behavior; b != nil && b.ScaleDown != nil {
		return window(b.ScaleDown.StabilizationWindowSeconds, v.DownscaleStabilization)
	}
	return v.DownscaleStabilization
}

// limit is the number of replicas up or down to which the scale may change now, and the
// reason and message of the condition if that is not enough.
type limit struct {
	replicas        int32
	reason, message string
}

func (v *view) tooMany() limit {
	return limit{v.Spec.MaxReplicas, "TooManyReplicas", "the desired replica count is more than the maximum replica count"}
}

func (v *view) tooFew() limit {
	return limit{v.least(), "TooFewReplicas", "the desired replica count is less than the minimum replica count"}
}

// upper returns how far the scale may grow.
func (v *view) upper() limit {
	current := v.scale.Spec.Replicas
	ceiling := max(2*min(current, math.MaxInt32/2), 4) // without a behavior, per sync
	if b := v.Spec.Behavior; b != nil {
		ceiling = max(current, v.farthest(b.ScaleUp, math.MaxInt32, func(start float64, p *autoscalingv2.HPAScalingPolicy) float64 {
			if p.Type == autoscalingv2.PodsScalingPolicy {
				return start + float64(p.Value)
			}
			return math.Ceil(start * (1 + float64(p.Value)/100))
		}))
	}
	if ceiling < v.Spec.MaxReplicas {
		return limit{ceiling, "ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate"}
	}
	return v.tooMany()
}

// lower returns how far the scale may shrink.
func (v *view) lower() limit {
	current, floor := v.scale.Spec.Replicas, int32(math.MinInt32)
	if b := v.Spec.Behavior; b != nil {
		floor = min(current, v.farthest(b.ScaleDown, math.MinInt32, func(start float64, p *autoscalingv2.HPAScalingPolicy) float64 {
			if p.Type == autoscalingv2.PodsScalingPolicy {
				return start - float64(p.Value)
			}
			return math.Trunc(start * (1 - float64(p.Value)/100))
		}))
	}
	if floor > v.least() {
		return limit{floor, "ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate"}
	}
	return v.tooFew()
}

// farthest returns the limit of the rules' policies: that of the policy which allows the
// largest change or, if the rules say so, the smallest or none. free is the limit without
// policies; its sign is the direction.
func (v *view) farthest(r *autoscalingv2.HPAScalingRules, free int32, policy func(start float64, p *autoscalingv2.HPAScalingPolicy) float64) int32 {
	if r == nil {
		return free
	}
	choice := autoscalingv2.MaxChangePolicySelect
	if r.SelectPolicy != nil {
		choice = *r.SelectPolicy
	}
	current := v.scale.Spec.Replicas
	if choice == autoscalingv2.DisabledPolicySelect {
		return current
	}
	up := (free > 0) == (choice == autoscalingv2.MaxChangePolicySelect)
	var out float64
	for i := range r.Policies {
		p := &r.Policies[i]
		at := policy(float64(v.history.before(current, v.now, window(&p.PeriodSeconds, 0))), p)
		switch {
		case i == 0:
			out = at
		case up:
			out = max(out, at)
		default:
			out = min(out, at)
		}
	}
	if len(r.Policies) == 0 {
		return free
	}
	return int32(min(max(out, math.MinInt32), math.MaxInt32))
}
