package apiserver

import (
	"math"
	"runtime"

	"podium/pkg/apiserver/budget"
	"podium/pkg/apiserver/flowcontrol"
	"podium/pkg/apiserver/request"
)

// initialWatches is how many watches of one user may send their initial events
// concurrently. Each sends all existing objects, which may be large.
const initialWatches = 8

// heavyShare returns how many large bodies and lists of one user are worked on at a time: half of the
// processors stay free of them, so that small requests of others find one.
func heavyShare() int64 { return int64(max(1, runtime.GOMAXPROCS(0)/2)) }

// limits are the budgets that all requests share. A nil field means no limit.
type limits struct {
	bodies *budget.Pool        // bytes of bodies being read
	memory *budget.Pool        // bytes for decoding and encoding, for ordinary users
	system *budget.Pool        // the same for nodes and the control plane
	turns  *budget.Pool        // watches of ordinary users in their initial events
	heavy  *budget.Pool        // requests of ordinary users that decode or encode much at the moment
	writes *flowcontrol.Writes // bytes that ordinary users write to the store
}

// newLimits returns the limits of a configuration.
func newLimits(cfg *Config) limits {
	l := limits{
		turns: budget.NewPool(budget.Limits{Total: math.MaxInt64, Share: initialWatches}),
		heavy: budget.NewPool(budget.Limits{Total: math.MaxInt64, Share: heavyShare()}),
	}
	if cfg.Memory > 0 {
		l.bodies = budget.NewMemory(cfg.Memory/8, budget.SmallBody)
		l.memory = budget.NewMemory(cfg.Memory/8*5, budget.Small)
		l.system = budget.NewMemory(cfg.Memory/4, budget.Small)
	}
	if cfg.MaxWriteRate > 0 {
		l.writes = flowcontrol.NewWrites(cfg.MaxWriteRate, cfg.Now)
	}
	return l
}

// give sets the budgets of a request. ordinary is false for nodes and the
// control plane, which have a memory budget of their own and no write limit.
func (l *limits) give(req *request.Request, ordinary bool) {
	if !ordinary {
		req.Memory = l.system
		return
	}
	req.Memory, req.Turns, req.Heavy = l.memory, l.turns, l.heavy
	if l.writes != nil {
		req.Spend = l.writes.Spend
	}
}
