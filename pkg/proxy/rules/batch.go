package rules

import (
	"bytes"
	"maps"
	"slices"
)

// Batch is one transaction: chains to (re)write whole and chains to remove.
type Batch struct {
	Write  map[Chain][]string
	Delete []Chain // sorted
}

// Empty says that there is nothing to do.
func (b Batch) Empty() bool { return len(b.Write) == 0 && len(b.Delete) == 0 }

// Emptying is the batch that leaves chains empty where this one removes them.
func (b Batch) Emptying() Batch {
	write := maps.Clone(b.Write)
	for _, c := range b.Delete {
		write[c] = nil
	}
	return Batch{Write: write}
}

// Count is the number of rules the batch writes to the table.
func (b Batch) Count(table string) int {
	n := 0
	for c, rs := range b.Write {
		if c.Table == table {
			n += len(rs)
		}
	}
	return n
}

// Render is the batch as input of iptables-restore --noflush. A line
// ":CHAIN - [0:0]" makes the chain or empties it, inside the transaction: the
// packet path sees the old rules or the new ones, never none.
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
