package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is a line of go test -json; see go doc test2json.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build events
	Test       string // empty for events of the package
	Elapsed    float64
	Output     string
}

// id names a test, or a package if test is empty.
type id struct{ pkg, test string }

func (i id) String() string {
	if i.test == "" {
		return i.pkg
	}
	return i.pkg + " " + i.test
}

// collector prints events and collects what the summary lists.
type collector struct {
	out     io.Writer
	verbose bool

	running   map[id]bool
	parents   map[id]bool     // tests that have subtests
	output    map[id][]string // of tests and packages that have not ended
	failed    []id
	said      map[id][]string // the first lines of those that failed
	ran       int
	skipped   map[string][]string // names by reason
	durations []duration
}

type duration struct {
	id      id
	seconds float64
}

// What the summary repeats of a test that failed: the report is long, and its beginning may be lost.
const (
	firstLines = 8
	lineLength = 300
)

func newCollector(out io.Writer, verbose bool) *collector {
	return &collector{out: out, verbose: verbose, running: map[id]bool{}, parents: map[id]bool{}, output: map[id][]string{}, said: map[id][]string{}, skipped: map[string][]string{}}
}

// line takes a line of the input. One that is no event, such as what a program
// around the test prints, is printed as it is.
func (c *collector) line(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
		c.out.Write(line)
		return
	}
	i := id{strings.TrimPrefix(e.Package, "podium/"), e.Test}
	switch e.Action {
	case "start", "run":
		c.running[i] = true
		if at := strings.LastIndexByte(e.Test, '/'); at > 0 {
			c.parents[id{i.pkg, e.Test[:at]}] = true
		}
	case "build-output":
		fmt.Fprint(c.out, e.Output)
	case "output":
		c.print(i, e.Output)
	case "pass", "fail", "skip":
		c.end(i, e)
	}
}

// noise is what a package's own output holds besides what TestMain and the
// benchmarks print: the result lines, which end says again.
var noise = regexp.MustCompile(`^(PASS|FAIL|ok|\?|exit status|coverage:|testing: warning: no tests to run)\b`)

func (c *collector) print(i id, text string) {
	if strings.HasPrefix(text, "=== ") { // RUN, PAUSE, CONT, NAME
		return
	}
	if c.verbose || i.test == "" && !noise.MatchString(text) {
		fmt.Fprint(c.out, text)
	}
	if i.test != "" {
		c.output[i] = append(c.output[i], text)
	}
}

// end notes how a test or a package ended.
func (c *collector) end(i id, e event) {
	delete(c.running, i)
	output := c.output[i]
	delete(c.output, i)
	if e.Action == "fail" {
		c.failed = append(c.failed, i)
		c.said[i] = output[:min(firstLines, len(output))]
		if !c.verbose {
			fmt.Fprint(c.out, strings.Join(output, ""))
		}
	}
	switch {
	case i.test == "":
		c.endPackage(i, e)
	case e.Action == "skip":
		c.skip(i, output)
	case !c.parents[i]:
		c.ran++
		c.durations = append(c.durations, duration{i, e.Elapsed})
	}
}

// endPackage prints a package's result. What its tests left unended, in a panic
// or at a timeout, is printed with it.
func (c *collector) endPackage(p id, e event) {
	for _, i := range slices.SortedFunc(maps.Keys(c.running), func(a, b id) int { return cmp.Compare(a.test, b.test) }) {
		if i.pkg == p.pkg && e.Action == "fail" {
			if !c.verbose {
				fmt.Fprint(c.out, strings.Join(c.output[i], ""))
			}
			fmt.Fprintln(c.out, "did not end:", i)
			delete(c.running, i)
		}
	}
	result := map[string]string{"pass": "ok", "fail": "FAIL", "skip": "no tests"}[e.Action]
	if e.Action != "skip" {
		fmt.Fprintf(c.out, "%-4s %-50s %7.1fs\n", result, p.pkg, e.Elapsed)
	}
}

// location is the "file.go:12: " before what a test logs.
var location = regexp.MustCompile(`^\s*\S+\.go:\d+: `)

// skip notes a skipped test with its reason: the last line that it logged.
func (c *collector) skip(i id, output []string) {
	reason := "no reason given"
	for _, line := range output {
		if at := location.FindString(line); at != "" {
			reason = strings.TrimSpace(line[len(at):])
		}
	}
	c.skipped[reason] = append(c.skipped[reason], i.String())
}

// ok reports whether nothing failed and all that began has ended.
func (c *collector) ok() bool { return len(c.failed) == 0 && len(c.running) == 0 }

// summarize prints the end of the report.
func (c *collector) summarize(slowest int, took time.Duration) {
	slices.SortStableFunc(c.durations, func(a, b duration) int { return cmp.Compare(b.seconds, a.seconds) })
	fmt.Fprintln(c.out, "-- slowest tests")
	for _, d := range c.durations[:min(slowest, len(c.durations))] {
		fmt.Fprintf(c.out, "%8.1fs  %s\n", d.seconds, d.id)
	}
	total := 0
	for _, names := range c.skipped {
		total += len(names)
	}
	if total > 0 {
		fmt.Fprintln(c.out, "-- skipped tests")
	}
	for _, reason := range slices.Sorted(maps.Keys(c.skipped)) {
		names := c.skipped[reason]
		more := ""
		if len(names) > 3 {
			names, more = names[:3], fmt.Sprintf(" and %d more", len(names)-3)
		}
		fmt.Fprintf(c.out, "  %s: %s%s\n", reason, strings.Join(names, ", "), more)
	}
	for _, i := range c.failed {
		fmt.Fprintln(c.out, "-- failed:", i)
		for _, line := range c.said[i] {
			fmt.Fprintf(c.out, "%.*s\n", lineLength, strings.TrimRight(line, "\n"))
		}
	}
	for _, i := range slices.SortedFunc(maps.Keys(c.running), func(a, b id) int { return cmp.Compare(a.String(), b.String()) }) {
		fmt.Fprintln(c.out, "-- did not end:", i)
	}
	fmt.Fprintf(c.out, "-- %d tests ran, %d skipped, %.0f s\n", c.ran, total, took.Seconds())
}
