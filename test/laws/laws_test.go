package laws

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "podium"

// pkg is what `go list` says of a package; tests are not counted.
type pkg struct {
	Name, ImportPath, Dir string
	GoFiles               []string
	Imports, Deps         []string
}

// path is the package's place in the repository.
func (p *pkg) path() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

func list(t *testing.T) []*pkg {
	t.Helper()
	pkgs, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	return pkgs
}

var packages = sync.OnceValues(func() ([]*pkg, error) {
	cmd := exec.Command("go", "list", "-e", "-json=Name,ImportPath,Dir,GoFiles,Imports,Deps", "./...")
	cmd.Dir = filepath.Join("..", "..")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, &stderr)
	}
	var pkgs []*pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &pkg{}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, err
		}
		pkgs = append(pkgs, p)
	}
})

// below says whether an import path is root or in one of its folders.
func below(path, root string) bool {
	return path == root || strings.HasPrefix(path, root+"/")
}

// rooms are what must not know of each other; each is one or more folders.
var rooms = map[string][]string{
	"the API server":      {"pkg/apiserver", "pkg/storage"},
	"the scheduler":       {"pkg/scheduler"},
	"the controllers":     {"pkg/controllers"},
	"the kubelet":         {"pkg/kubelet"},
	"the node's network":  {"pkg/proxy", "pkg/podnetwork", "pkg/networkpolicy", "pkg/l2announce", "pkg/netrules"},
	"the cloud's manager": {"pkg/cloud"},
	"the cluster's names": {"pkg/dns"},
	"the metrics server":  {"pkg/metricsserver"},
}

func room(path string) string {
	for name, folders := range rooms {
		for _, f := range folders {
			if below(path, f) {
				return name
			}
		}
	}
	return ""
}

func TestDaemonsDoNotImportEachOther(t *testing.T) {
	for _, p := range list(t) {
		mine := room(p.path())
		if mine == "" {
			continue
		}
		for _, dep := range p.Deps {
			if theirs := room(strings.TrimPrefix(dep, module+"/")); theirs != "" && theirs != mine {
				t.Errorf("%s (%s) imports %s (%s)", p.path(), mine, dep, theirs)
			}
		}
	}
}

// TestTheCLIImportsNoDaemon: of the daemons, podium contains only the
// scheduler's library.
func TestTheCLIImportsNoDaemon(t *testing.T) {
	library := []string{"pkg/scheduler/allocation", "pkg/scheduler/framework", "pkg/scheduler/plugins", "pkg/scheduler/snapshot", "pkg/scheduler/topology"}
	for _, p := range list(t) {
		if !below(p.path(), "pkg/cli") {
			continue
		}
		for _, dep := range p.Deps {
			path := strings.TrimPrefix(dep, module+"/")
			if room(path) != "" && !slices.ContainsFunc(library, func(l string) bool { return below(path, l) }) {
				t.Errorf("%s imports %s", p.path(), path)
			}
		}
	}
}

func TestOnlyTheAPIServerImportsStorage(t *testing.T) {
	for _, p := range list(t) {
		if below(p.path(), "pkg/apiserver") || below(p.path(), "pkg/storage") || below(p.path(), "test") {
			continue
		}
		for _, dep := range p.Imports {
			if below(dep, module+"/pkg/storage") {
				t.Errorf("%s imports %s", p.path(), dep)
			}
		}
	}
}

// TestFloors checks that the arrows go down: the floors that all stand on know
// nothing of what stands on them.
func TestFloors(t *testing.T) {
	may := map[string][]string{
		"pkg/version": {"pkg/version"},
		"pkg/scheme":  {"pkg/scheme"},
		"pkg/backoff": {"pkg/backoff"},
		"pkg/prom":    {"pkg/prom"},
		"pkg/client":  {"pkg/client", "pkg/backoff", "pkg/prom", "pkg/scheme", "pkg/version"},
		"pkg/daemon":  {"pkg/daemon", "pkg/backoff", "pkg/prom", "pkg/client", "pkg/scheme", "pkg/version"},
		"pkg/podspec": {"pkg/podspec", "pkg/fieldcheck"},
		// What the controllers of two daemons are made of.
		"pkg/controller": {"pkg/controller", "pkg/conditions", "pkg/daemon", "pkg/backoff", "pkg/prom", "pkg/client", "pkg/scheme", "pkg/version"},
	}
	// Facts and rules that several daemons share. They know nothing of each other.
	for _, shared := range []string{"attachment", "conditions", "defaultclass", "deviceselector", "expression", "fieldcheck", "intree", "netrules", "quota", "resourceclaim", "roles", "volumebinding", "wallclock"} {
		may["pkg/"+shared] = []string{"pkg/" + shared}
	}
	for _, p := range list(t) {
		for floor, allowed := range may {
			if !below(p.path(), floor) {
				continue
			}
			for _, dep := range p.Deps {
				path, ours := strings.CutPrefix(dep, module+"/")
				if ours && !slices.ContainsFunc(allowed, func(a string) bool { return below(path, a) }) {
					t.Errorf("%s imports %s", p.path(), path)
				}
			}
		}
	}
}

func TestWhatMakesAClusterIsOurs(t *testing.T) {
	forbidden := []string{"k8s.io/client-go", "k8s.io/kubernetes", "k8s.io/apiserver", "k8s.io/kube-aggregator", "sigs.k8s.io/controller-runtime"}
	// What pkg/cel imports, and the warnings that the CEL rules of
	// apiextensions-apiserver import.
	belowCEL := []string{"apis/cel", "authentication/serviceaccount", "authentication/user", "authorization/authorizer", "features", "util/compatibility", "util/feature", "warning"}
	allowed := []string{"k8s.io/apiserver/pkg/cel", "k8s.io/client-go/util/jsonpath", "k8s.io/client-go/third_party/forked/golang/template", "k8s.io/kube-aggregator/pkg/apis/apiregistration"}
	for _, name := range belowCEL {
		allowed = append(allowed, "k8s.io/apiserver/pkg/"+name)
	}
	for _, p := range list(t) {
		if !below(p.path(), "pkg") && !below(p.path(), "cmd") && !below(p.path(), "api") {
			continue
		}
		for _, dep := range p.Deps {
			if slices.ContainsFunc(forbidden, func(f string) bool { return below(dep, f) }) && !slices.ContainsFunc(allowed, func(a string) bool { return below(dep, a) }) {
				t.Errorf("%s imports %s", p.path(), dep)
			}
		}
	}
}

// TestEveryPackageHasADocComment wants a package comment in doc.go, or in the
// main file: main.go of a command, the file of a package that is one file
// beside its tests, or the one that carries the package's name.
func TestEveryPackageHasADocComment(t *testing.T) {
	for _, p := range list(t) {
		if len(p.GoFiles) == 0 {
			continue
		}
		places := []string{"doc.go", "main.go", p.Name + ".go"}
		said := false
		for _, name := range p.GoFiles {
			if !slices.Contains(places, name) && len(p.GoFiles) > 1 {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Error(err)
				continue
			}
			said = said || f.Doc != nil && strings.TrimSpace(f.Doc.Text()) != ""
		}
		if !said {
			t.Errorf("%s: no package comment in one of %v", p.path(), places)
		}
	}
}

// TestNothingHappensBeforeMain: no init functions in the product.
func TestNothingHappensBeforeMain(t *testing.T) {
	for _, p := range list(t) {
		if !below(p.path(), "pkg") && !below(p.path(), "cmd") && !below(p.path(), "api") {
			continue
		}
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Error(err)
				continue
			}
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
					t.Errorf("%s/%s has an init function", p.path(), name)
				}
			}
		}
	}
}

func TestMainIsWiring(t *testing.T) {
	const limit = 50
	mains, err := filepath.Glob(filepath.Join("..", "..", "cmd", "*", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range mains {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(text, []byte("\n")); n >= limit {
			t.Errorf("%s has %d lines: a main stays below %d", name, n, limit)
		}
	}
}

func TestTopLevel(t *testing.T) {
	want := []string{
		".ci", ".gitignore", "LICENSE", "Makefile", "README.md",
		"api", "cmd", "deploy", "go.mod", "go.sum", "hack", "pkg", "test",
	}
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	seen := map[string]bool{}
	for _, name := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		top, _, _ := strings.Cut(name, "/")
		seen[top] = true
	}
	for name := range seen {
		if !slices.Contains(want, name) {
			t.Errorf("%s does not belong at the top", name)
		}
	}
	for _, name := range want {
		if !seen[name] {
			t.Errorf("%s is missing at the top", name)
		}
	}
}
