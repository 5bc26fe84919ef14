package proxy

import (
	"context"
	"time"
)

// guard remembers when the kernel was last compared with what we wrote.
type guard struct {
	times   Times
	checked time.Time
	cost    time.Duration // of the last comparison
}

// due says whether to compare now. Where the kernel tells that nobody touched
// the tables, every Sync period is enough; where it tells that somebody did,
// at once, as long as comparing takes no more than a twentieth of our time.
// Where it does not tell, every few seconds.
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

// guard finds and mends what others did to our rules.
func (p *Proxy) guard(ctx context.Context, g *guard) {
	if p.applier == nil || !p.applier.Partial() {
		return // the next sync writes everything anyhow
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
			p.cfg.Log.Error("the kernel's rules could not be compared with ours", "error", err)
			p.pending.note(func(*batch) {})
		}
		return
	}
	p.health.updated(time.Now())
	if !mended.Empty() || hooks > 0 {
		p.cfg.Log.Warn("somebody changed our rules; they are restored",
			"chains", len(mended.Write), "strangers", len(mended.Delete), "hooks", hooks)
		p.metrics.repairs.Inc()
		p.endLostFlows()
	}
}
