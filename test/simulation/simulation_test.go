package simulation

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

var (
	seeds      = flag.Int("seeds", 8, "how many seeds TestSeeds tries")
	first      = flag.Uint64("first", 1, "the first of the seeds that TestSeeds tries")
	seed       = flag.Uint64("seed", 0, "the only seed that TestSeeds tries; each of its faults is logged")
	nodes      = flag.Int("nodes", 10, "number of nodes of TestSeeds' cluster")
	pods       = flag.Int("pods", 60, "number of pods of TestSeeds' largest deployment")
	daemonLogs = flag.Bool("daemon-logs", false, "show what the daemons log")
)

// flagged returns the size that the flags set.
func flagged() size {
	return size{nodes: *nodes, pods: *pods, apiservers: 2, replicas: 2, proxies: true}
}

// outcome is the result of a simulation.
type outcome struct {
	state    string
	problems []string
	faults   string // all of them
	summary  string
}

// simulate runs one story under one plan, and then checks the result.
func simulate(t *testing.T, p func() *plan, s size, tell func(context.Context, *world), change ...func(*world)) (o outcome) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		plan := p()
		w := newWorld(ctx, t, plan, s, change...)
		began, start := time.Now(), realTime()
		tell(ctx, w)
		w.soothe()
		w.settle(ctx)
		rest := time.Since(began)
		found := w.state(ctx)
		w.check(found)
		w.watchRest(ctx)
		o = outcome{state: found.String(), faults: plan.story()}
		w.journal.mu.Lock()
		o.summary = fmt.Sprintf("%d writes, at rest after %s (really %s in all); %s", w.journal.writes, rest.Round(time.Second), realTime()-start, plan.tally())
		w.journal.mu.Unlock()
		cancel()
		w.running.Wait()
		o.problems = w.problems
	})
	return o
}

// realTime returns the real time, outside of the bubble.
func realTime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano()).Round(time.Millisecond)
}

// TestSeeds checks that the story has the same end with all faults.
func TestSeeds(t *testing.T) { trySeeds(t, flagged(), live) }

// TestWorkloadSeeds does the same with the story of the workloads that have an invariant of
// their own at every write.
func TestWorkloadSeeds(t *testing.T) {
	trySeeds(t, size{nodes: 6, apiservers: 2, replicas: 2}, workloads)
}

// trySeeds tells a story without faults, then with those of each seed, and compares the ends.
func trySeeds(t *testing.T, s size, tell func(context.Context, *world)) {
	want := simulate(t, func() *plan { return newPlan(0) }, s, tell)
	for _, p := range want.problems {
		t.Errorf("without faults: %s", p)
	}
	t.Logf("without faults: %s\n%s", want.summary, want.state)
	if t.Failed() {
		return
	}
	from, to := *first, *first+uint64(*seeds)
	if *seed != 0 {
		from, to = *seed, *seed+1
	}
	name := t.Name()
	for n := from; n < to; n++ {
		t.Run(fmt.Sprintf("seed=%d", n), func(t *testing.T) {
			t.Parallel()
			got := simulate(t, func() *plan { return newPlan(n) }, s, tell)
			diff := cmp.Diff(strings.Split(want.state, "\n"), strings.Split(got.state, "\n"))
			t.Log(got.summary)
			if diff == "" && len(got.problems) == 0 {
				if *seed != 0 {
					t.Log("\n" + got.faults)
				}
				return
			}
			t.Errorf("replay by: go test ./test/simulation -run %s -nodes %d -pods %d -seed %d\n%s\nfaults:\n%s\nproblems:\n%s\nstate, -want +got:\n%s",
				name, *nodes, *pods, n, got.summary, got.faults, strings.Join(got.problems, "\n"), diff)
		})
	}
}

// TestThousandPods runs the story of the workloads, beside a deployment of 1,000 pods, on 100
// nodes and with the faults of one seed.
func TestThousandPods(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while")
	}
	began := realTime()
	large := size{nodes: 100, pods: 1000, apiservers: 2, replicas: 2}
	o := simulate(t, func() *plan { return newPlan(max(*seed, 1)) }, large, func(ctx context.Context, w *world) {
		create(ctx, w, settings("default"))
		create(ctx, w, service("default", "web", false))
		create(ctx, w, deployment("default", "web", "web:1", w.size.pods))
		workloads(ctx, w)
	})
	t.Logf("%s in all; %s\n%s", realTime()-began, o.summary, o.state)
	for _, p := range o.problems {
		t.Error(p)
	}
	if !slices.ContainsFunc(strings.Split(o.state, "\n"), func(line string) bool {
		return strings.HasPrefix(line, "deployment default/web:") && strings.Contains(line, "available 1000,")
	}) {
		t.Error("not all 1,000 pods are available")
	}
	if t.Failed() {
		t.Logf("faults:\n%s", o.faults)
	}
}
