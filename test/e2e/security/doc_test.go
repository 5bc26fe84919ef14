package security

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// homes are the folders of tests that the table names with their package.
var homes = map[string]string{"": ".", "audit": "../../../pkg/apiserver/audit", "e2e": ".."}

// TestTableOfAttacks checks that each test that the table of the package comment names exists.
func TestTableOfAttacks(t *testing.T) {
	f, err := parser.ParseFile(gotoken.NewFileSet(), "doc.go", nil, parser.ParseComments)
	check(t, err)
	named := regexp.MustCompile(`(?:([a-z0-9]+)\.)?(Test\w+)`).FindAllStringSubmatch(f.Doc.Text(), -1)
	if len(named) < 60 {
		t.Fatalf("the table names %d tests only: this test looks in the wrong place", len(named))
	}
	have := map[string]map[string]bool{}
	for home, dir := range homes {
		have[home] = testsOf(t, dir)
	}
	for _, n := range named {
		if !have[n[1]][n[2]] {
			t.Errorf("there is no test %s", strings.TrimPrefix(n[1]+"."+n[2], "."))
		}
	}
}

// testsOf returns the names of the tests in dir.
func testsOf(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	check(t, err)
	names := map[string]bool{}
	for _, path := range files {
		f, err := parser.ParseFile(gotoken.NewFileSet(), path, nil, parser.SkipObjectResolution)
		check(t, err)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				names[fn.Name.Name] = true
			}
		}
	}
	return names
}
