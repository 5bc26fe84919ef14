// Command summary reads the events of go test -json or go tool test2json from
// standard input and prints what a person needs of them: a line per package,
// the output of what failed, and at the end the tests that were skipped with
// their reasons, the slowest tests, what failed with its first lines, and the
// time that all took.
//
//	go test -json ./... | summary [-v]
//
// It exits with 1 if a test or a package failed or did not end.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

func main() {
	verbose := flag.Bool("v", false, "print all output as it comes, not only that of failures")
	slowest := flag.Int("slowest", 10, "number of slowest tests to list")
	flag.Parse()
	ok, err := run(os.Stdin, os.Stdout, *verbose, *slowest)
	if err != nil {
		fmt.Fprintln(os.Stderr, "summary:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run reads events from in until its end and reports whether all passed.
func run(in io.Reader, out io.Writer, verbose bool, slowest int) (ok bool, err error) {
	begin := time.Now()
	c := newCollector(out, verbose)
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			c.line(line)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return false, fmt.Errorf("read events: %w", err)
		}
	}
	c.summarize(slowest, time.Since(begin))
	return c.ok(), nil
}
