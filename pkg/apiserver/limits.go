package apiserver

import (
	"math"

	"podium/pkg/apiserver/budget"
	"podium/pkg/apiserver/flowcontrol"
	"podium/pkg/apiserver/request"
)

// initialWatches is how many watches of one user send their initial events at
// the same time: what is there can be large, and each watch sends all of it.
const initialWatches = 8

// limits are what requests may take of the server together; nil: no limit.
type limits struct {
	bodies *budget.Pool        // bodies that are being read
	memory *budget.Pool        // decoding and encoding for ordinary users
	system *budget.Pool        // the same for nodes and the control plane
	turns  *budget.Pool        // watches of ordinary users that send their initial events
	writes *flowcontrol.Writes // bytes that ordinary users write to the store
}

func newLimits(cfg *Config) limits {
	l := limits{turns: budget.NewPool(budget.Limits{Total: math.MaxInt64, Share: initialWatches})}
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

// give tells a request what it may take. An ordinary one is of a user who is no
// part of the cluster itself.
func (l *limits) give(req *request.Request, ordinary bool) {
	if !ordinary {
		req.Memory = l.system
		return
	}
	req.Memory, req.Turns = l.memory, l.turns
	if l.writes != nil {
		req.Spend = l.writes.Spend
	}
}
