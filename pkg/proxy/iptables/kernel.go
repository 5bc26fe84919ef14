package iptables

import (
	"context"
	"fmt"
	"slices"

	"podium/pkg/proxy/rules"
)

// Kernel is the machine's iptables, as narrow as we use it. Host is the real
// one, Fake a working one in memory.
type Kernel interface {
	// Restore runs one batch in iptables-restore's language, without flushing
	// anything it does not mention.
	Restore(ctx context.Context, batch []byte) error
	// Counts is the number of rules in every chain of a table.
	Counts(ctx context.Context, table string) (map[string]int, error)
	// Generation changes with every change anybody makes to the tables. ok is
	// false where the kernel does not tell.
	Generation() (generation uint32, ok bool)
	// Hook makes sure that the jump exists; added says that it did not.
	Hook(h rules.Hook) (added bool, err error)
	// Unhook removes the jump if it exists.
	Unhook(h rules.Hook) error
	// Features tries what the kernel can do.
	Features(ctx context.Context) (Features, error)
}

// Applier brings desired rules into the kernel. Not for concurrent use.
type Applier struct {
	kernel     Kernel
	hooks      []rules.Hook
	generation uint32
	watched    bool // generation is known
	broken     bool // the last restore failed: what the kernel has is unknown
}

// NewApplier writes nothing yet.
func NewApplier(k Kernel, hooks []rules.Hook) *Applier {
	return &Applier{kernel: k, hooks: hooks, broken: true}
}

// Partial says whether the next Sync may write changes only.
func (a *Applier) Partial() bool { return !a.broken }

// Sync writes what changed in the set, or, the first time, after an error and
// when full is set, everything. Old chains stay until the rules that lead to
// them are gone, in the same transaction: traffic is never interrupted.
func (a *Applier) Sync(ctx context.Context, set *rules.Set, full bool) (rules.Batch, error) {
	full = full || a.broken
	batch := set.Changes()
	if full {
		existing, err := a.existing(ctx)
		if err != nil {
			return rules.Batch{}, err
		}
		batch = set.Full(existing)
	}
	if err := a.restore(ctx, set, batch); err != nil {
		return batch, err
	}
	if full {
		for i := len(a.hooks) - 1; i >= 0; i-- { // each goes to the top: the last one first
			if _, err := a.kernel.Hook(a.hooks[i]); err != nil {
				a.broken = true
				return batch, err
			}
		}
	}
	if !batch.Empty() || full {
		a.generation, a.watched = a.kernel.Generation()
	}
	return batch, nil
}

func (a *Applier) restore(ctx context.Context, set *rules.Set, batch rules.Batch) error {
	if err := a.write(ctx, batch); err != nil {
		return err
	}
	a.broken = false
	set.Commit(batch)
	return nil
}

// write gives a batch to the kernel. A chain that somebody else's rule still
// jumps to cannot be removed; it must not keep the rest from being written, so
// then chains are emptied instead.
func (a *Applier) write(ctx context.Context, batch rules.Batch) error {
	if batch.Empty() {
		return nil
	}
	err := a.kernel.Restore(ctx, batch.Render())
	if err != nil && len(batch.Delete) > 0 {
		err = a.kernel.Restore(ctx, batch.Emptying().Render())
	}
	a.broken = a.broken || err != nil
	return err
}

// existing lists the chains of ours that the kernel has.
func (a *Applier) existing(ctx context.Context) ([]rules.Chain, error) {
	counts, err := a.counts(ctx)
	if err != nil {
		return nil, err
	}
	var out []rules.Chain
	for c := range counts {
		out = append(out, c)
	}
	return out, nil
}

func (a *Applier) counts(ctx context.Context) (map[rules.Chain]int, error) {
	out := map[rules.Chain]int{}
	for _, table := range rules.Tables() {
		counts, err := a.kernel.Counts(ctx, table)
		if err != nil {
			return nil, fmt.Errorf("read table %s: %w", table, err)
		}
		for name, n := range counts {
			if c := (rules.Chain{Table: table, Name: name}); Owned(c) {
				out[c] = n
			}
		}
	}
	return out, nil
}

// Foreign says whether somebody else may have touched the tables since our
// last write; known is false where the kernel does not tell.
func (a *Applier) Foreign() (touched, known bool) {
	g, ok := a.kernel.Generation()
	if !ok || !a.watched {
		return false, false
	}
	return g != a.generation, true
}

// Repair compares the kernel with what we wrote and mends the difference. It
// returns the batch it wrote and the hooks it put back.
func (a *Applier) Repair(ctx context.Context, set *rules.Set) (rules.Batch, int, error) {
	generation, watched := a.kernel.Generation()
	counts, err := a.counts(ctx)
	if err != nil {
		return rules.Batch{}, 0, err
	}
	batch := set.Drift(counts)
	if err := a.write(ctx, batch); err != nil {
		return batch, 0, err
	}
	added := 0
	for i := len(a.hooks) - 1; i >= 0; i-- {
		was, err := a.kernel.Hook(a.hooks[i])
		if err != nil {
			return batch, added, err
		}
		if was {
			added++
		}
	}
	if !batch.Empty() || added > 0 {
		generation, watched = a.kernel.Generation()
	}
	a.generation, a.watched = generation, watched
	return batch, added, nil
}

// Cleanup removes every hook and every chain of ours.
func Cleanup(ctx context.Context, k Kernel, hooks []rules.Hook) error {
	a := NewApplier(k, nil)
	existing, err := a.existing(ctx)
	if err != nil || len(existing) == 0 {
		return err
	}
	for _, h := range hooks {
		if !slices.Contains(existing, rules.Chain{Table: h.Table, Name: h.Target}) {
			continue // a jump cannot be there without the chain it leads to
		}
		if err := k.Unhook(h); err != nil {
			return err
		}
	}
	batch := rules.NewSet().Full(existing)
	return a.write(ctx, batch)
}
