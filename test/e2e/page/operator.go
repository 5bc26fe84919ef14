package page

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Machine is a machine on which an operator has a shell.
type Machine interface {
	// Run runs a script in a root shell that exits at the first command that fails,
	// and returns all output.
	Run(ctx context.Context, script string) (said string, err error)
	// Put copies a file to a path on the machine.
	Put(ctx context.Context, file, path string) error
}

// Operator runs commands on a machine as a part of a test, and logs them.
type Operator struct {
	*testing.T
	Machine  Machine
	Name     string
	Patience time.Duration // timeout of a script, and of copying a file
}

// never is for commands that must not succeed: bash -e ignores "! command".
const never = "never() { if bash -c \"$*\"; then echo \"must not be: $*\"; exit 1; fi; }\n"

// Try runs a script and logs it with its duration.
func (o *Operator) Try(script string) (string, error) {
	begin := time.Now()
	said, err := o.quietly(script)
	o.Logf("%s$ %s\n%s(%.1f s)", o.Name, strings.TrimSpace(script), said, time.Since(begin).Seconds())
	return said, err
}

func (o *Operator) quietly(script string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), o.Patience)
	defer cancel()
	return o.Machine.Run(ctx, never+script)
}

// Run runs a script that must succeed. It returns the output.
func (o *Operator) Run(script string) string {
	o.Helper()
	said, err := o.Try(script)
	if err != nil {
		o.Fatalf("%s: %v", o.Name, err)
	}
	return said
}

// runWithRetries runs a script that must succeed, with up to again retries.
func (o *Operator) runWithRetries(script string, again int) string {
	o.Helper()
	for ; again > 0; again-- {
		if said, err := o.Try(script); err == nil {
			return said
		}
	}
	return o.Run(script)
}

// Ask runs a script that must succeed, and logs it only if it fails.
func (o *Operator) Ask(script string) string {
	o.Helper()
	said, err := o.quietly(script)
	if err != nil {
		o.Fatalf("%s$ %s\n%s%v", o.Name, script, said, err)
	}
	return said
}

// Refused runs a script that must fail with each of the parts in its output.
func (o *Operator) Refused(script string, parts ...string) {
	o.Helper()
	said, err := o.Try(script)
	if err == nil {
		o.Fatalf("%s: it was done", script)
	}
	for _, part := range parts {
		if !strings.Contains(said, part) {
			o.Errorf("%s: the complaint does not say %q", script, part)
		}
	}
}

// Until repeats a script until it succeeds, and returns its output. If that takes long, it logs
// the last failure.
func (o *Operator) Until(patience time.Duration, script string) string {
	o.Helper()
	begin, failed, complaint := time.Now(), 0, ""
	for {
		said, err := o.quietly(script)
		took := time.Since(begin)
		if err == nil && took > 2*time.Second {
			o.Logf("%s: after %.1f s, %d failed tries: %s\n%s", o.Name, took.Seconds(), failed, script, complaint)
		}
		if err == nil {
			return said
		}
		if took > patience {
			o.Fatalf("%s: %s: after %.0f s still: %v\n%s", o.Name, script, took.Seconds(), err, said)
		}
		failed, complaint = failed+1, fmt.Sprintf("%s%v", said, err)
		time.Sleep(200 * time.Millisecond)
	}
}

// Put copies a file to the machine.
func (o *Operator) Put(file, path string) {
	o.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), o.Patience)
	defer cancel()
	if err := o.Machine.Put(ctx, file, path); err != nil {
		o.Fatalf("%s: copy %s: %v", o.Name, path, err)
	}
}
