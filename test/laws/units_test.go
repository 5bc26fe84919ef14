package laws

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestAWatchedDaemonGivesSignsOfLife: systemd ends a daemon whose unit has a
// watchdog and whose code never calls it.
func TestAWatchedDaemonGivesSignsOfLife(t *testing.T) {
	units, err := filepath.Glob(filepath.Join("..", "..", "deploy", "systemd", "*.service"))
	if err != nil || len(units) == 0 {
		t.Fatalf("units: %v, %v", units, err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(unit), ".service")
		if bytes.Contains(text, []byte("WatchdogSec=")) && !callsWatchdog(t, name) {
			t.Errorf("%s has a watchdog, and nothing that cmd/%s runs calls daemon.Watchdog", unit, name)
		}
	}
}

// TestEveryDaemonHasAMemoryLimit: a daemon that grows without bound is ended by
// the kernel before the machine is, and its collector knows the bound: daemons
// that are made by daemon.Options.Command set the soft limit, and so does etcd.
func TestEveryDaemonHasAMemoryLimit(t *testing.T) {
	units, err := filepath.Glob(filepath.Join("..", "..", "deploy", "systemd", "*.service"))
	if err != nil || len(units) == 0 {
		t.Fatalf("units: %v, %v", units, err)
	}
	limit := regexp.MustCompile(`(?m)^MemoryMax=([1-9]|[1-6]\d)%$`)
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("Type=oneshot")) {
			continue
		}
		if !limit.Match(text) {
			t.Errorf("%s has no MemoryMax that leaves the machine a third of its memory", unit)
		}
		if bytes.Contains(text, []byte("MemoryHigh=")) {
			t.Errorf("%s is slowed down instead of restarted: leave MemoryHigh to the collector's soft limit", unit)
		}
		if name := strings.TrimSuffix(filepath.Base(unit), ".service"); !imports(t, "cmd/"+name, "pkg/daemon/memory") {
			t.Errorf("cmd/%s does not set the collector's soft limit", name)
		}
	}
}

func imports(t *testing.T, path, dep string) bool {
	t.Helper()
	for _, p := range list(t) {
		if p.path() == path {
			return slices.ContainsFunc(p.Deps, func(d string) bool { return strings.HasSuffix(d, "/"+dep) })
		}
	}
	return false
}

// callsWatchdog looks into what cmd/NAME is made of, for daemon.Watchdog or the
// daemon.Worker that calls it.
func callsWatchdog(t *testing.T, name string) bool {
	t.Helper()
	for _, p := range list(t) {
		if p.path() != "cmd/"+name {
			continue
		}
		for _, dep := range list(t) {
			for _, imported := range p.Deps {
				if dep.ImportPath == imported && dep.path() != "pkg/daemon" && (mentions(t, dep, "Watchdog") || mentions(t, dep, "Worker")) {
					return true
				}
			}
		}
	}
	return false
}

func mentions(t *testing.T, p *pkg, selected string) (found bool) {
	t.Helper()
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			found = found || ok && s.Sel.Name == selected
			return !found
		})
	}
	return found
}
