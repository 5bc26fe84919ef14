package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSummary reads the events of two packages: one passes and has skipped
// tests, the other fails and has a test that did not end.
func TestSummary(t *testing.T) {
	const events = `{"Action":"start","Package":"podium/pkg/good"}
{"Action":"run","Package":"podium/pkg/good","Test":"TestFast"}
{"Action":"output","Package":"podium/pkg/good","Test":"TestFast","Output":"=== RUN   TestFast\n"}
{"Action":"output","Package":"podium/pkg/good","Test":"TestFast","Output":"quiet\n"}
{"Action":"pass","Package":"podium/pkg/good","Test":"TestFast","Elapsed":0.5}
{"Action":"run","Package":"podium/pkg/good","Test":"TestRoot"}
{"Action":"output","Package":"podium/pkg/good","Test":"TestRoot","Output":"    good_test.go:7: needs root\n"}
{"Action":"output","Package":"podium/pkg/good","Test":"TestRoot","Output":"--- SKIP: TestRoot (0.00s)\n"}
{"Action":"skip","Package":"podium/pkg/good","Test":"TestRoot","Elapsed":0}
{"Action":"output","Package":"podium/pkg/good","Output":"a table\n"}
{"Action":"output","Package":"podium/pkg/good","Output":"PASS\n"}
{"Action":"pass","Package":"podium/pkg/good","Elapsed":1.5}
cluster created
{"Action":"start","Package":"podium/pkg/bad"}
{"Action":"run","Package":"podium/pkg/bad","Test":"TestWrong"}
{"Action":"output","Package":"podium/pkg/bad","Test":"TestWrong","Output":"    bad_test.go:9: got 1, want 2\n"}
{"Action":"fail","Package":"podium/pkg/bad","Test":"TestWrong","Elapsed":2}
{"Action":"run","Package":"podium/pkg/bad","Test":"TestHangs"}
{"Action":"output","Package":"podium/pkg/bad","Test":"TestHangs","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"podium/pkg/bad","Elapsed":3}
`
	var out strings.Builder
	ok, err := run(strings.NewReader(events), &out, false, 1)
	if err != nil || ok {
		t.Errorf("ok %t, %v: want a failure to be reported", ok, err)
	}
	want := `a table
ok   pkg/good                                               1.5s
cluster created
    bad_test.go:9: got 1, want 2
panic: test timed out
did not end: pkg/bad TestHangs
FAIL pkg/bad                                                3.0s
-- slowest tests
     2.0s  pkg/bad TestWrong
-- skipped tests
  needs root: pkg/good TestRoot
-- failed: pkg/bad TestWrong
    bad_test.go:9: got 1, want 2
-- failed: pkg/bad
-- 2 tests ran, 1 skipped, 0 s
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestUnendedFails has the events stop in the middle of a test.
func TestUnendedFails(t *testing.T) {
	var out strings.Builder
	ok, err := run(strings.NewReader(`{"Action":"run","Package":"p","Test":"TestX"}`), &out, false, 1)
	if err != nil || ok || !strings.Contains(out.String(), "did not end: p TestX") {
		t.Errorf("ok %t, %v:\n%s", ok, err, out.String())
	}
}
