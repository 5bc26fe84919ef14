// Command cis runs the checks of the CIS Kubernetes Benchmark (1.10) that apply
// to Podium's files, flags and permissions. It runs on a running cluster of
// `podium cluster create --provider local`, and prints a table with ID, check,
// result (ok or FAIL) and reason.
//
//	go run ./hack/cis [-dir _run]
//
// Other checks do not apply: there are no static pods, no manifests and no etcd
// process of its own, and chapter 5 of the benchmark is about the content of a
// cluster.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

func main() {
	dir := flag.String("dir", "_run", "folder of the cluster")
	flag.Parse()
	c, err := open(*dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cis:", err)
		os.Exit(2)
	}
	if failed := report(os.Stdout, c, checks()); failed > 0 {
		fmt.Printf("%d checks failed\n", failed)
		os.Exit(1)
	}
}

// report prints the table and returns the number of failed checks.
func report(out io.Writer, c *cluster, all []check) (failed int) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintln(w, "ID\tCHECK\tRESULT\tWHY")
	for _, k := range all {
		why, err := k.run(c)
		result := "ok"
		if err != nil {
			result, why = "FAIL", err.Error()
			failed++
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", k.id, k.title, result, why)
	}
	return failed
}
