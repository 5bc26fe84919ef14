package database

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"podium/test/e2e/docked"
)

// fault kills something at once. strike fails if that is not there to be killed.
type fault struct {
	name   string
	strike func(context.Context) error
}

// faults are all of them; the last one is left out of short tests.
var faults = []fault{
	{"the server", func(ctx context.Context) error {
		return on(ctx, worker, "pkill", "-KILL", "-o", "-f", "^postgres -D /data/db")
	}},
	{"kubelet", unit(worker, "kubelet")},
	{"containerd", unit(worker, "containerd")},
	{"its node", power(worker)},
	{"kube-apiserver", unit(plane, "kube-apiserver")},
	{"control plane", power(plane)},
}

// deal returns n faults in random order; each occurs as often as any other, but for one.
func deal(n int, r *rand.Rand) (out []fault) {
	deck := faults
	if n < len(faults) {
		deck = faults[:len(faults)-1]
	}
	for len(out) < n {
		for _, i := range r.Perm(len(deck)) {
			out = append(out, deck[i])
		}
	}
	return out[:n]
}

// unit kills the process of a systemd unit, and nothing that it has started.
func unit(node, name string) func(context.Context) error {
	return func(ctx context.Context) error {
		return on(ctx, node, "systemctl", "kill", "--signal=KILL", "--kill-whom=main", name)
	}
}

// power kills a node with all of its processes, and starts it again.
func power(node string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := docked.Docker(ctx, "kill", node)
		_, started := docked.Docker(ctx, "start", node)
		return errors.Join(err, started)
	}
}

func on(ctx context.Context, node string, command ...string) error {
	_, err := docked.Docker(ctx, append([]string{"exec", node}, command...)...)
	return err
}

// table formats how long no transaction was acknowledged, for each fault, and what the
// writers have done.
func table(figures map[string][]time.Duration, g group) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-16s %6s %12s %12s\n%-16s %6s %12s %12s\n", "", "", "no answer,", "", "killed", "times", "median", "worst")
	for _, f := range faults {
		times := figures[f.name]
		if len(times) == 0 {
			continue
		}
		slices.Sort(times)
		fmt.Fprintf(&b, "%-16s %6d %10.2f s %10.2f s\n", f.name, len(times), times[len(times)/2].Seconds(), times[len(times)-1].Seconds())
	}
	sent, acked, lost := 0, 0, 0
	for _, w := range g {
		sent, acked, lost = sent+w.sent, acked+len(w.acked), lost+w.lost
	}
	fmt.Fprintf(&b, "%d transactions sent, %d acknowledged, all of them there; %d sessions ended without an answer", sent, acked, lost)
	return b.String()
}
