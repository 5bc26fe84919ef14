package iptables

import (
	"context"
	"fmt"
	"slices"

	"podium/pkg/netrules"
)

// Kernel is the part of iptables that the proxy uses. Host implements it on this
// machine, Fake in memory.
type Kernel interface {
	// Restore applies one batch in the format of iptables-restore. It does not change
	// chains that the batch does not mention.
	Restore(ctx context.Context, batch []byte) error
	// Counts returns the number of rules by chain of a table.
	Counts(ctx context.Context, table string) (map[string]int, error)
	// Generation returns a number that changes with every change of the tables, by
	// any program. ok is false if the kernel does not provide it.
	Generation() (generation uint32, ok bool)
	// Hook adds the jump unless it exists; added reports whether it did.
	Hook(h netrules.Hook) (added bool, err error)
	// Unhook removes the jump if it exists.
	Unhook(h netrules.Hook) error
	// Features determines the capabilities of the kernel by trying them.
	Features(ctx context.Context) (Features, error)
}

// Applier applies desired rules to the kernel. It is not safe for concurrent use.
type Applier struct {
	kernel     Kernel
	hooks      []netrules.Hook
	generation uint32
	watched    bool // generation is known
	broken     bool // the last restore failed: the kernel's rules are unknown
}

// NewApplier returns an Applier. It does not write anything.
func NewApplier(k Kernel, hooks []netrules.Hook) *Applier {
	return &Applier{kernel: k, hooks: hooks, broken: true}
}

// Partial reports whether the next Sync may write only changes.
func (a *Applier) Partial() bool { return !a.broken }

// Sync writes the changes of the set. The first time, after an error, and if full is
// set, it writes everything. In one transaction it removes old chains and the rules
// that jump to them, so that traffic is not interrupted.
func (a *Applier) Sync(ctx context.Context, set *netrules.Set, full bool) (netrules.Batch, error) {
	full = full || a.broken
	batch := set.Changes()
	if full {
		existing, err := a.existing(ctx)
		if err != nil {
			return netrules.Batch{}, err
		}
		batch = set.Full(existing)
	}
	if err := a.restore(ctx, set, batch); err != nil {
		return batch, err
	}
	if full {
		for i := len(a.hooks) - 1; i >= 0; i-- { // each is inserted at the top, so the last one goes first
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

func (a *Applier) restore(ctx context.Context, set *netrules.Set, batch netrules.Batch) error {
	if err := a.write(ctx, batch); err != nil {
		return err
	}
	a.broken = false
	set.Commit(batch)
	return nil
}

// write applies a batch. A chain to which a rule of another program jumps cannot be
// removed; if the batch fails and removes chains, write empties them instead, so that
// the rest is written.
func (a *Applier) write(ctx context.Context, batch netrules.Batch) error {
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

// existing returns our chains in the kernel.
func (a *Applier) existing(ctx context.Context) ([]netrules.Chain, error) {
	counts, err := a.counts(ctx)
	if err != nil {
		return nil, err
	}
	var out []netrules.Chain
	for c := range counts {
		out = append(out, c)
	}
	return out, nil
}

func (a *Applier) counts(ctx context.Context) (map[netrules.Chain]int, error) {
	out := map[netrules.Chain]int{}
	for _, table := range netrules.Tables() {
		counts, err := a.kernel.Counts(ctx, table)
		if err != nil {
			return nil, fmt.Errorf("read table %s: %w", table, err)
		}
		for name, n := range counts {
			if c := (netrules.Chain{Table: table, Name: name}); Owned(c) {
				out[c] = n
			}
		}
	}
	return out, nil
}

// Foreign reports whether another program may have changed the tables since our last
// write; known is false if the kernel does not report changes.
func (a *Applier) Foreign() (touched, known bool) {
	g, ok := a.kernel.Generation()
	if !ok || !a.watched {
		return false, false
	}
	return g != a.generation, true
}

// Repair compares the kernel with the set and repairs differences. It returns the
// batch that it wrote and the number of hooks that it restored.
func (a *Applier) Repair(ctx context.Context, set *netrules.Set) (netrules.Batch, int, error) {
	generation, watched := a.kernel.Generation()
	counts, err := a.counts(ctx)
	if err != nil {
		return netrules.Batch{}, 0, err
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

// Cleanup removes all our hooks and chains.
func Cleanup(ctx context.Context, k Kernel, hooks []netrules.Hook) error {
	a := NewApplier(k, nil)
	existing, err := a.existing(ctx)
	if err != nil || len(existing) == 0 {
		return err
	}
	for _, h := range hooks {
		if !slices.Contains(existing, netrules.Chain{Table: h.Table, Name: h.Target}) {
			continue // without its target chain the jump cannot exist
		}
		if err := k.Unhook(h); err != nil {
			return err
		}
	}
	batch := netrules.NewSet().Full(existing)
	return a.write(ctx, batch)
}
