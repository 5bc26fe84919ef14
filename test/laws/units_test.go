package laws

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
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
