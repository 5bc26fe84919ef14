package ha

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// round is one loss of a control plane and its effects.
type round struct {
	fault, victim string
	etcd          bool          // the victim led etcd
	outage        time.Duration // longest time without an acknowledged write while it was down
	returning     time.Duration // and while it came back
	moved         time.Duration // until others led what it led; 0: it led nothing
	back          time.Duration // until all was healthy again after its return
	requests      int           // to the Service
	failed        int           // of those
	lost          int           // acknowledged writes that are missing on a server
}

func (r *round) String() string {
	moved := "it led no daemon"
	if r.moved > 0 {
		moved = "leadership moved in " + seconds(r.moved)
	}
	return fmt.Sprintf("%-20s %-11s led etcd: %-5t  no write for %s; %s; back and healthy in %s, no write for %s; %d of %d requests failed",
		r.victim, r.fault, r.etcd, seconds(r.outage), moved, seconds(r.back), seconds(r.returning), r.failed, r.requests)
}

// figures are the results of several rounds.
type figures []*round

// table formats a row for each kind of fault, and one for all.
func (all figures) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-12s %6s %22s %22s %22s %18s %8s\n", "", "", "no write, while gone", "no write, coming back", "leadership moved", "requests", "writes")
	fmt.Fprintf(&b, "%-12s %6s", "lost by", "rounds")
	for range 3 {
		fmt.Fprintf(&b, " %11s %10s", "median", "worst")
	}
	fmt.Fprintf(&b, " %18s %8s\n", "failed of all", "lost")
	for _, f := range faults {
		var of figures
		for _, r := range all {
			if r.fault == f.name {
				of = append(of, r)
			}
		}
		of.row(&b, f.name)
	}
	all.row(&b, "all")
	fmt.Fprintf(&b, "goals: %s without a write, %s until leadership has moved, no request failed, no write lost", seconds(mostOutage), seconds(mostMove))
	return b.String()
}

func (all figures) row(b *strings.Builder, name string) {
	var outage, returning, moved []time.Duration
	requests, failed, lost := 0, 0, 0
	for _, r := range all {
		outage, returning = append(outage, r.outage), append(returning, r.returning)
		if r.moved > 0 {
			moved = append(moved, r.moved)
		}
		requests, failed, lost = requests+r.requests, failed+r.failed, lost+r.lost
	}
	fmt.Fprintf(b, "%-12s %6d", name, len(all))
	for _, times := range [][]time.Duration{outage, returning, moved} {
		median, worst := summary(times)
		fmt.Fprintf(b, " %11s %10s", median, worst)
	}
	fmt.Fprintf(b, " %18s %8d\n", fmt.Sprintf("%d of %d", failed, requests), lost)
}

// summary returns the median (the upper one of an even number) and the worst.
func summary(times []time.Duration) (median, worst string) {
	if len(times) == 0 {
		return "-", "-"
	}
	slices.Sort(times)
	return seconds(times[len(times)/2]), seconds(times[len(times)-1])
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
