package flowcontrol

import (
	"math"
	"time"
)

// demand measures the seats that a level's requests use and wait for.
type demand struct {
	since, at    time.Time
	now, highest int
	sum, squares float64 // integrals over time, in seconds
	high         int     // the highest, average and deviation of the last period
	average, dev float64
	smoothed     float64
	target       float64
}

// smoothing is how much of the smoothed demand a period of lower demand keeps.
const smoothing = 0.977

func (d *demand) reset(now time.Time) { *d = demand{since: now, at: now} }

// set records that the demand is seats from now on.
func (d *demand) set(seats int, now time.Time) {
	d.integrate(now)
	d.now = seats
	d.highest = max(d.highest, seats)
}

func (d *demand) integrate(now time.Time) {
	if dt := now.Sub(d.at).Seconds(); dt > 0 {
		x := float64(d.now)
		d.sum += x * dt
		d.squares += x * x * dt
		d.at = now
	}
}

// endPeriod computes the statistics of the time since the last call. The smoothed
// demand follows rises at once and falls slowly.
func (d *demand) endPeriod(now time.Time) {
	d.integrate(now)
	d.high = d.highest
	d.average, d.dev = float64(d.now), 0
	if total := d.at.Sub(d.since).Seconds(); total > 0 {
		d.average = d.sum / total
		d.dev = math.Sqrt(max(0, d.squares/total-d.average*d.average))
	}
	envelope := d.average + d.dev
	d.smoothed = max(envelope, smoothing*d.smoothed+(1-smoothing)*envelope)
	d.since, d.at, d.sum, d.squares, d.highest = now, now, 0, 0, d.now
}

// claim is what a level can use of the seats that are divided.
type claim struct {
	least, atLeast, most int // by configuration; by demand; by configuration
	target               float64
}

// divide divides seats among the levels. Each gets the same fraction of its target,
// which it returns, within the level's bounds. If there are too few seats for that,
// each gets the least and a share of what its demand exceeds this by.
func divide(seats int, claims []claim) (limits []int, fraction float64) {
	least, atLeast := 0, 0
	for _, c := range claims {
		least += c.least
		atLeast += c.atLeast
	}
	part := 0.0
	switch {
	case seats >= atLeast:
		fraction = fairFraction(float64(seats), claims)
	case seats > least:
		part = float64(seats-least) / float64(atLeast-least)
	}
	for _, c := range claims {
		n := float64(c.least) + part*float64(c.atLeast-c.least)
		if seats >= atLeast {
			n = c.at(fraction)
		}
		limits = append(limits, int(math.Round(n)))
	}
	return limits, fraction
}

// at returns the seats of a claim at a fraction of the targets.
func (c *claim) at(fraction float64) float64 {
	return min(max(fraction*max(c.target, 0.001), float64(c.atLeast)), float64(max(c.most, c.atLeast)))
}

// fairFraction returns the fraction at which the claims sum up to seats, by bisection:
// the sum grows with the fraction.
func fairFraction(seats float64, claims []claim) float64 {
	low, high := 0.0, 0.0
	for _, c := range claims {
		high = max(high, float64(c.most)/max(c.target, 0.001))
	}
	for range 64 {
		middle := (low + high) / 2
		sum := 0.0
		for i := range claims {
			sum += claims[i].at(middle)
		}
		if sum < seats {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}
