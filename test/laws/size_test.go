package laws

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Bounds that keep the code readable: what a reader meets fits a screen.
const (
	maxFileLines     = 500   // every file of the product
	functionLinesP99 = 45    // 99 of 100 functions of the product
	maxComplexity    = 15    // of a function of the product, but for
	shareComplex     = 0.006 // this share of them
)

// function is a function of the product, with the size of its text and its
// cyclomatic complexity.
type function struct {
	where             token.Position
	name              string
	lines, complexity int
}

func TestFilesAreShort(t *testing.T) {
	eachFile(t, []string{"api", "cmd", "hack", "pkg"}, func(path string) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "\n"); n > maxFileLines && !isGenerated(t, path) {
			t.Errorf("%s has %d lines: the limit is %d", path, n, maxFileLines)
		}
	})
}

func TestFunctionsAreShortAndSimple(t *testing.T) {
	all := productFunctions(t)
	slices.SortFunc(all, func(a, b function) int { return b.lines - a.lines })
	if long := all[len(all)/100]; long.lines > functionLinesP99 {
		t.Errorf("one function in a hundred has %d lines or more: the limit is %d. The longest:", long.lines, functionLinesP99)
		for _, f := range all[:10] {
			t.Logf("%s: %s has %d lines", f.where, f.name, f.lines)
		}
	}
	slices.SortFunc(all, func(a, b function) int { return b.complexity - a.complexity })
	n := slices.IndexFunc(all, func(f function) bool { return f.complexity <= maxComplexity })
	if share := float64(n) / float64(len(all)); share > shareComplex {
		t.Errorf("%d of %d functions (%.2f %%) have a complexity over %d: the limit is %.1f %%", n, len(all), 100*share, maxComplexity, 100*shareComplex)
		for _, f := range all[:n] {
			t.Logf("%s: %s has complexity %d", f.where, f.name, f.complexity)
		}
	}
}

func TestComplexity(t *testing.T) {
	for body, want := range map[string]int{
		"":                            1,
		"if a && b || c { return }":   4,
		"for range 3 { if a { } }":    3,
		"switch { case a: default: }": 2,
		"select { case <-c: default: }; func() { for {} }()": 3,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "", "package p; func f() {"+body+"}", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := complexity(f.Decls[0].(*ast.FuncDecl)); got != want {
			t.Errorf("%q: complexity %d, want %d", body, got, want)
		}
	}
}

// productFunctions parses every function that is neither generated nor a test's.
func productFunctions(t *testing.T) (out []function) {
	t.Helper()
	files := token.NewFileSet()
	eachFile(t, []string{"api", "cmd", "pkg"}, func(path string) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		f, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if ast.IsGenerated(f) {
			return
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				begin, end := files.Position(fn.Pos()), files.Position(fn.End())
				out = append(out, function{begin, fn.Name.Name, end.Line - begin.Line + 1, complexity(fn)})
			}
		}
	})
	return out
}

// complexity is the cyclomatic complexity: one, and one more for each place
// where control may go two ways.
func complexity(fn *ast.FuncDecl) int {
	n := 1
	ast.Inspect(fn, func(node ast.Node) bool {
		switch x := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			n += min(len(x.List), 1) // the default is no branch of its own
		case *ast.CommClause:
			if x.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if x.Op == token.LAND || x.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

func isGenerated(t *testing.T, path string) bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return ast.IsGenerated(f)
}

// eachFile calls do with every Go file in these folders of the repository.
func eachFile(t *testing.T, folders []string, do func(path string)) {
	t.Helper()
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join("..", "..", folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			do(path)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
