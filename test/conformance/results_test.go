package conformance

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
)

var (
	resultsFile   = flag.String("results", "", "file that collects the results of several runs; the table counts all of them")
	leastNodes    = flag.Int("least-nodes", 0, "run only the rows that need at least as many schedulable nodes")
	updatePassing = flag.Bool("update-passing", false, "add the rows that pass to passing.txt")
)

// The states of a row.
const (
	passed      = "pass"
	failed      = "fail"
	missing     = "missing"
	notRunnable = "not runnable"
	notRun      = "not run" // by this run: another cluster or another -run pattern
)

// results holds the state of each row that has run, by id.
var results struct {
	sync.Mutex
	of map[string]string
}

// record notes the result of a row when its test ends.
func record(t *testing.T, id string) {
	state := passed
	switch {
	case t.Failed():
		state = failed
	case t.Skipped():
		return
	}
	results.Lock()
	defer results.Unlock()
	if results.of == nil {
		results.of = map[string]string{}
	}
	results.of[id] = state
}

// catalogueRow is a line of catalogue.tsv.
type catalogueRow struct{ id, area string }

func readCatalogue() ([]catalogueRow, error) {
	lines, err := readLines("catalogue.tsv")
	if err != nil {
		return nil, err
	}
	var rows []catalogueRow
	for _, line := range lines[1:] {
		id, rest, _ := strings.Cut(line, "\t")
		area, _, _ := strings.Cut(rest, "\t")
		rows = append(rows, catalogueRow{id, area})
	}
	return rows, nil
}

// readLines returns the lines of a file that are neither empty nor comments.
func readLines(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool {
		return line == "" || strings.HasPrefix(line, "#")
	}), nil
}

// readPairs reads a file of lines "ID<tab>TEXT".
func readPairs(file string) (map[string]string, error) {
	lines, err := readLines(file)
	if err != nil {
		return nil, err
	}
	pairs := map[string]string{}
	for _, line := range lines {
		id, text, _ := strings.Cut(line, "\t")
		pairs[id] = text
	}
	return pairs, nil
}

// report merges the results of this run with those of -results, prints the
// table and updates the files that the flags name.
func report(out io.Writer) error {
	rows, err := readCatalogue()
	if err != nil {
		return err
	}
	reasons, err := readPairs("notrunnable.tsv")
	if err != nil {
		return err
	}
	all := map[string]string{}
	if *resultsFile != "" {
		unlock, err := lock(*resultsFile)
		if err != nil {
			return err
		}
		defer unlock()
		if all, err = readPairs(*resultsFile); err != nil {
			return err
		}
	}
	maps.Copy(all, results.of)
	printTable(out, rows, all, reasons)
	if *resultsFile != "" {
		if err := writeLines(*resultsFile, all, func(id, state string) string { return id + "\t" + state }); err != nil {
			return err
		}
	}
	if *updatePassing {
		return addPassing(all)
	}
	return nil
}

// lock waits until no other run merges its results into the file.
func lock(file string) (unlock func() error, err error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return f.Close, nil
}

// addPassing adds the rows that passed to passing.txt.
func addPassing(all map[string]string) error {
	known, err := readLines("passing.txt")
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	ids := map[string]string{}
	for _, id := range known {
		ids[id] = passed
	}
	for id, state := range all {
		if state == passed {
			ids[id] = passed
		}
	}
	return writeLines("passing.txt", ids, func(id, _ string) string { return id })
}

func writeLines(file string, of map[string]string, line func(id, state string) string) error {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(of)) {
		b.WriteString(line(id, of[id]) + "\n")
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

// state is the state of a row for the table.
func state(id string, all, reasons map[string]string, tested map[string]bool) string {
	switch {
	case all[id] != "":
		return all[id]
	case tested[id]:
		return notRun
	case reasons[id] != "":
		return notRunnable
	}
	return missing
}

// printTable prints the count of rows for each area and state, and the failed
// rows.
func printTable(out io.Writer, rows []catalogueRow, all, reasons map[string]string) {
	tested := map[string]bool{}
	for _, tc := range testcases() {
		tested[tc.id] = true
	}
	columns := []string{passed, failed, missing, notRunnable, notRun}
	counts, total := map[string]map[string]int{}, map[string]int{}
	var failures []string
	for _, r := range rows {
		s := state(r.id, all, reasons, tested)
		if counts[r.area] == nil {
			counts[r.area] = map[string]int{}
		}
		counts[r.area][s]++
		total[s]++
		if s == failed {
			failures = append(failures, r.id)
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "area\t%s\t\n", strings.Join(columns, "\t"))
	line := func(area string, of map[string]int) {
		fmt.Fprintf(w, "%s\t", area)
		for _, c := range columns {
			fmt.Fprintf(w, "%d\t", of[c])
		}
		fmt.Fprintln(w)
	}
	for _, area := range slices.Sorted(maps.Keys(counts)) {
		line(area, counts[area])
	}
	line("total", total)
	w.Flush()
	for _, id := range failures {
		fmt.Fprintln(out, "failed:", id)
	}
}
