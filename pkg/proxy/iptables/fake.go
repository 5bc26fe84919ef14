package iptables

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"podium/pkg/netrules"
)

// Fake implements Kernel in memory. It parses batches like iptables-restore and
// rejects what the kernel rejects (jumps to missing chains, removal of chains that are
// jumped to), atomically per table. It is safe for concurrent use.
type Fake struct {
	mu         sync.Mutex
	tables     map[string]map[string][]string
	generation uint32
	writes     int // lines of batches read so far

	// Has is the result of Features.
	Has  Features
	fail func() error
}

// NewFake returns a Fake with the system's chains only.
func NewFake() *Fake {
	return &Fake{Has: AllFeatures(), tables: map[string]map[string][]string{
		netrules.Filter: {"INPUT": nil, "FORWARD": nil, "OUTPUT": nil},
		netrules.NAT:    {"PREROUTING": nil, "INPUT": nil, "OUTPUT": nil, "POSTROUTING": nil},
		netrules.Raw:    {"PREROUTING": nil, "OUTPUT": nil},
	}}
}

// Restore implements Kernel.
func (k *Fake) Restore(_ context.Context, batch []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fail != nil {
		if err := k.fail(); err != nil {
			return err
		}
	}
	var table string
	var work map[string][]string
	for i, line := range strings.Split(strings.TrimSuffix(string(batch), "\n"), "\n") {
		k.writes++
		var err error
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
			work = cloneTable(k.tables[table])
		case line == "COMMIT":
			if err = check(work); err == nil {
				k.tables[table] = work
				k.generation++
			}
		default:
			err = command(work, line)
		}
		if err != nil {
			return fmt.Errorf("line %d of the batch: %w", i+1, err)
		}
	}
	return nil
}

func command(chains map[string][]string, line string) error {
	word, rest, _ := strings.Cut(line, " ")
	switch {
	case strings.HasPrefix(word, ":"):
		chains[word[1:]] = nil
	case word == "-A":
		chain, rule, _ := strings.Cut(rest, " ")
		if _, ok := chains[chain]; !ok {
			return fmt.Errorf("no chain %s", chain)
		}
		chains[chain] = append(chains[chain], rule)
	case word == "-X":
		if rs, ok := chains[rest]; !ok || len(rs) > 0 {
			return fmt.Errorf("chain %s does not exist or is not empty", rest)
		}
		delete(chains, rest)
	default:
		return fmt.Errorf("unknown command %q", line)
	}
	return nil
}

func check(chains map[string][]string) error {
	for chain, rs := range chains {
		if len(chain) > 28 {
			return fmt.Errorf("chain name %s is longer than 28", chain)
		}
		for _, r := range rs {
			_, after, _ := strings.Cut(r, "-j ")
			target, _, _ := strings.Cut(after, " ")
			if _, ok := chains[target]; !ok && strings.HasPrefix(target, "KUBE-") {
				return fmt.Errorf("chain %s jumps to %s, which does not exist", chain, target)
			}
		}
	}
	return nil
}

func cloneTable(t map[string][]string) map[string][]string {
	out := make(map[string][]string, len(t))
	for name, rs := range t {
		out[name] = slices.Clip(rs)
	}
	return out
}

// Counts implements Kernel.
func (k *Fake) Counts(_ context.Context, table string) (map[string]int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[string]int{}
	for name, rs := range k.tables[table] {
		out[name] = len(rs)
	}
	return out, nil
}

// Generation implements Kernel.
func (k *Fake) Generation() (uint32, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.generation, true
}

// Hook implements Kernel.
func (k *Fake) Hook(h netrules.Hook) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	chain, rule := k.tables[h.Table][h.Chain], strings.Join(h.Words(), " ")
	if slices.Contains(chain, rule) {
		return false, nil
	}
	if _, ok := k.tables[h.Table][h.Target]; !ok {
		return false, fmt.Errorf("no chain %s", h.Target)
	}
	k.tables[h.Table][h.Chain] = append([]string{rule}, chain...)
	k.generation++
	return true, nil
}

// Unhook implements Kernel.
func (k *Fake) Unhook(h netrules.Hook) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	rule := strings.Join(h.Words(), " ")
	k.tables[h.Table][h.Chain] = slices.DeleteFunc(k.tables[h.Table][h.Chain], func(r string) bool { return r == rule })
	return nil
}

// Features implements Kernel.
func (k *Fake) Features(context.Context) (Features, error) { return k.Has, nil }

// FailWith makes each Restore fail with the error of f, if any; a nil f ends that.
func (k *Fake) FailWith(f func() error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fail = f
}

// Flush empties a chain, as another program would.
func (k *Fake) Flush(table, chain string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tables[table][chain] = nil
	k.generation++
}

// Lines returns the number of lines of all batches so far.
func (k *Fake) Lines() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.writes
}

// Dump returns a table as text, with chains in alphabetical order.
func (k *Fake) Dump(table string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var names []string
	for name := range k.tables[table] {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		b.WriteString(":" + name + "\n")
		for _, r := range k.tables[table][name] {
			b.WriteString("\t" + r + "\n")
		}
	}
	return b.String()
}
