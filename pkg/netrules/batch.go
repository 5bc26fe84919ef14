package netrules

import (
	"bytes"
	"maps"
	"slices"
)

// Batch is one transaction: the chains to replace and the chains to remove.
type Batch struct {
	Write  map[Chain][]string
	Delete []Chain // sorted
}

// Empty reports whether the batch changes nothing.
func (b Batch) Empty() bool { return len(b.Write) == 0 && len(b.Delete) == 0 }

// Emptying returns a batch that empties the chains which b removes.
func (b Batch) Emptying() Batch {
	write := maps.Clone(b.Write)
	for _, c := range b.Delete {
		write[c] = nil
	}
	return Batch{Write: write}
}

// Count returns the number of rules that the batch writes to a table.
func (b Batch) Count(table string) int {
	n := 0
	for c, rs := range b.Write {
		if c.Table == table {
			n += len(rs)
		}
	}
	return n
}

// Render returns the batch as input of iptables-restore --noflush. A line
// ":CHAIN - [0:0]" creates or empties the chain inside the transaction: packets see
// either the old or the new rules.
func (b Batch) Render() []byte {
	var out bytes.Buffer
	write := slices.SortedFunc(maps.Keys(b.Write), compareChains)
	for _, table := range Tables() {
		renderTable(&out, table, of(table, write), of(table, b.Delete), b.Write)
	}
	return out.Bytes()
}

func of(table string, chains []Chain) []Chain {
	from, _ := slices.BinarySearchFunc(chains, Chain{Table: table}, compareChains)
	to := from
	for to < len(chains) && chains[to].Table == table {
		to++
	}
	return chains[from:to]
}

func renderTable(out *bytes.Buffer, table string, write, remove []Chain, content map[Chain][]string) {
	if len(write) == 0 && len(remove) == 0 {
		return
	}
	out.WriteString("*" + table + "\n")
	for _, chains := range [][]Chain{write, remove} {
		for _, c := range chains {
			out.WriteString(":" + c.Name + " - [0:0]\n")
		}
	}
	for _, c := range write {
		for _, r := range content[c] {
			out.WriteString("-A ")
			out.WriteString(c.Name)
			out.WriteByte(' ')
			out.WriteString(r)
			out.WriteByte('\n')
		}
	}
	for _, c := range remove {
		out.WriteString("-X " + c.Name + "\n")
	}
	out.WriteString("COMMIT\n")
}
