package page

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// notebook is a machine that only records the scripts.
type notebook struct {
	typed []string
	tired int // number of scripts that fail
}

func (n *notebook) Run(_ context.Context, script string) (string, error) {
	script = strings.TrimPrefix(strings.TrimPrefix(script, never), "cd /root\n")
	n.typed = append(n.typed, strings.TrimSpace(script))
	if n.tired > 0 {
		n.tired--
		return "", errors.New("tired")
	}
	switch {
	case strings.Contains(script, "--print-join-command"):
		return "echo secret | podium join real\n", nil
	case strings.Contains(script, "certs upload"):
		return "echo secret key | podium join real --control-plane\n", nil
	}
	return "", nil
}

func (n *notebook) Put(context.Context, string, string) error { return nil }

// TestFollow runs the real page's commands on notebooks: each runs on its machines, and printed
// commands replace the examples.
func TestFollow(t *testing.T) {
	books := map[string]*notebook{}
	operator := func(name string) *Operator {
		books[name] = &notebook{}
		return &Operator{T: t, Machine: books[name], Name: name, Patience: time.Minute}
	}
	s := Story{First: operator("first"), Planes: []*Operator{operator("second"), operator("third")}, Workers: []*Operator{operator("worker")}}
	var beside []string
	s.Before = map[string]func(){"worker podium join": func() { beside = append(beside, "before "+s.Join) }}
	s.After = map[string]func(){"first podium certs upload": func() { beside = append(beside, "after "+s.JoinPlane) }}
	s.Follow(t)

	for _, row := range []struct{ on, typed string }{
		{"first", "apt-get install -y ./podium_*.deb"}, {"third", "apt-get install -y ./podium_*.deb"},
		{"first", "podium init"},
		{"worker", "echo secret | podium join real"},
		{"second", "echo secret key | podium join real --control-plane"}, {"third", "echo secret key | podium join real --control-plane"},
		{"first", "podium restore /root/podium.backup"},
		{"worker", "podium reset"},
	} {
		if !slices.Contains(books[row.on].typed, row.typed) {
			t.Errorf("%s: %q was not typed; what was:\n%s", row.on, row.typed, strings.Join(books[row.on].typed, "\n"))
		}
	}
	for name, book := range books {
		if text := strings.Join(book.typed, "\n"); strings.Contains(text, "WORKER") || strings.Contains(text, "10.0.0.11") {
			t.Errorf("%s: an example was typed as it stands on the page:\n%s", name, text)
		}
	}
	if want := []string{"before echo secret | podium join real", "after echo secret key | podium join real --control-plane"}; !slices.Equal(beside, want) {
		t.Errorf("done beside the page: %q, want %q", beside, want)
	}
}

// TestAgain has a machine on which a command succeeds at the third attempt.
func TestAgain(t *testing.T) {
	n := &notebook{tired: 2}
	o := &Operator{T: t, Machine: n, Name: "slow", Patience: time.Minute}
	o.runWithRetries("podium init", 2)
	if want := []string{"podium init", "podium init", "podium init"}; !slices.Equal(n.typed, want) {
		t.Errorf("typed %q, want %q", n.typed, want)
	}
}

func TestReadWantsCommands(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte("# A page\n\n```sh first\npodium init\n```\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(file); err == nil || !strings.Contains(err.Error(), "only 1 commands") {
		t.Errorf("a page that lost its commands: %v", err)
	}
}
