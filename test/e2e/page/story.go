package page

import (
	"slices"
	"strings"
	"sync"
	"testing"
)

// file is the page, relative to the tests' folders.
const file = "../../../deploy/README.md"

// Story is the page with the machines to run it on, and the actions of a test in between.
type Story struct {
	First   *Operator
	Planes  []*Operator // further control planes
	Workers []*Operator // if empty, the commands for workers are skipped

	// Join and JoinPlane are the commands by which workers and control planes join, as
	// the machines print them. They replace the examples on the page.
	Join, JoinPlane string

	// Again is the number of retries of a failed command, which the page allows: for
	// machines so slow that timeouts expire.
	Again int

	// Before and After are called around commands. Their keys are the fence's word for
	// the machines and a part of the command: "first podium init".
	Before, After map[string]func()
}

// Follow runs the commands of the page, in order.
func (s *Story) Follow(t *testing.T) {
	t.Helper()
	commands, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	met := map[string]bool{}
	for _, c := range commands {
		call(s.Before, c, met)
		s.follow(t, c)
		call(s.After, c, met)
	}
	for _, calls := range []map[string]func(){s.Before, s.After} {
		for key := range calls {
			if !met[key] {
				t.Errorf("no command of the page is %q, where the test has something to do", key)
			}
		}
	}
}

func call(calls map[string]func(), c Command, met map[string]bool) {
	for key, do := range calls {
		if on, part, _ := strings.Cut(key, " "); on == c.On && strings.Contains(c.Script, part) {
			met[key] = true
			do()
		}
	}
}

// follow runs one command on its machines. Printed join commands replace the examples.
func (s *Story) follow(t *testing.T, c Command) {
	t.Helper()
	script, on := c.Script, []*Operator(nil)
	switch c.On {
	case "every":
		together(slices.Concat([]*Operator{s.First}, s.Planes, s.Workers), script)
		return
	case "first", "restore":
		on = []*Operator{s.First}
	case "plane":
		on = s.Planes
	case "worker":
		on = s.Workers
	case "upgrade":
		return // test/e2e/upgrade runs these: it has a next package
	default:
		t.Errorf("the page has a command for %q: which machine is that?", c.On)
	}
	switch {
	case strings.Contains(script, "WORKER") && len(s.Workers) == 0:
		return
	case strings.Contains(script, "WORKER"):
		script = strings.ReplaceAll(script, "WORKER", s.Workers[0].Name)
	case c.On == "worker" && strings.Contains(script, "podium join "):
		script = s.Join
	case c.On == "plane" && strings.Contains(script, "podium join "):
		script = s.JoinPlane
	}
	for _, o := range on {
		said := o.runWithRetries("cd /root\n"+script, s.Again)
		switch {
		case strings.Contains(script, "--print-join-command"):
			s.Join = strings.TrimSpace(said)
		case strings.Contains(script, "certs upload"):
			s.JoinPlane = strings.TrimSpace(said)
		}
	}
}

// together runs a script on several machines concurrently.
func together(on []*Operator, script string) {
	var all sync.WaitGroup
	for _, o := range on {
		all.Go(func() {
			if _, err := o.Try("cd /root\n" + script); err != nil {
				o.Errorf("%s: %v", o.Name, err)
			}
		})
	}
	all.Wait()
	if on[0].Failed() {
		on[0].FailNow()
	}
}
