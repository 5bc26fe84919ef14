package proxy

import (
	"context"
	"time"
)

// guard records when the kernel's rules were last compared with ours.
type guard struct {
	times   Times
	checked time.Time
	cost    time.Duration // of the last comparison
}

// due reports whether to compare now. known means that the kernel reports changes:
// then it is due every Sync interval and, if the tables were touched, at once, as
// long as comparing takes no more than a twentieth of the time. Otherwise it is due
// every blindCheck.
func (g *guard) due(now time.Time, touched, known bool) bool {
	since := now.Sub(g.checked)
	switch {
	case since >= g.times.Sync:
		return true
	case since < 20*g.cost:
		return false
	case known:
		return touched
	}
	return since >= blindCheck
}

const blindCheck = 5 * time.Second

// guard detects and repairs changes that other programs made to our rules.
func (p *Proxy) guard(ctx context.Context, g *guard) {
	if p.applier == nil || !p.applier.Partial() {
		return // the next sync rewrites all rules
	}
	now := time.Now()
	touched, known := p.applier.Foreign()
	if !g.due(now, touched, known) {
		return
	}
	mended, hooks, err := p.applier.Repair(ctx, p.set)
	g.checked, g.cost = time.Now(), time.Since(now)
	if err != nil {
		if ctx.Err() == nil {
			p.cfg.Log.Error("read rules from the kernel failed", "error", err)
			p.pending.note(func(*batch) {})
		}
		return
	}
	p.health.updated(time.Now())
	if !mended.Empty() || hooks > 0 {
		p.cfg.Log.Warn("iptables rules changed by another program, restoring",
			"chains", len(mended.Write), "strangers", len(mended.Delete), "hooks", hooks)
		p.metrics.repairs.Inc()
		p.endLostFlows()
	}
}
