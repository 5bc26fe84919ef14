package manifest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func names(docs []Document) (out []string) {
	for _, d := range docs {
		out = append(out, d.Object.GetKind()+"/"+d.Object.GetName())
	}
	return out
}

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		want []string
		err  string
	}{
		"Documents":      {in: "apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\napiVersion: v1\nkind: B\nmetadata: {name: b}\n", want: []string{"A/a", "B/b"}},
		"LeadingDashes":  {in: "---\napiVersion: v1\nkind: A\nmetadata: {name: a}\n---\n# nothing\n---\n", want: []string{"A/a"}},
		"DashesInText":   {in: "apiVersion: v1\nkind: A\nmetadata: {name: a}\ndata:\n  x: |\n    ---\n    y\n", want: []string{"A/a"}},
		"List":           {in: `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"A","metadata":{"name":"a"}}]}`, want: []string{"A/a"}},
		"JSONStream":     {in: `{"apiVersion":"v1","kind":"A","metadata":{"name":"a"}} {"apiVersion":"v1","kind":"B","metadata":{"name":"b"}}`, want: []string{"A/a", "B/b"}},
		"Windows":        {in: "apiVersion: v1\r\nkind: A\r\nmetadata: {name: a}\r\n---\r\napiVersion: v1\r\nkind: B\r\nmetadata: {name: b}\r\n", want: []string{"A/a", "B/b"}},
		"NoKind":         {in: "apiVersion: v1\nmetadata: {name: a}\n", err: "f: error validating data: kind not set"},
		"NotAnObject":    {in: "- a\n", err: "not an object"},
		"SecondIsBroken": {in: "apiVersion: v1\nkind: A\n---\na: b: c\n", err: "f document 2"},
		"Twice":          {in: "apiVersion: v1\nkind: A\nkind: B\n", err: "kind"},
	} {
		t.Run(name, func(t *testing.T) {
			docs, err := Parse([]byte(tc.in), "f")
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("got %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, names(docs)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSources(t *testing.T) {
	dir := t.TempDir()
	write := func(path, name string) {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("apiVersion: v1\nkind: A\nmetadata: {name: "+name+"}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("b.yaml", "b")
	write("a.yml", "a")
	write("notes.txt", "no")
	write("sub/c.json.yaml", "c")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/m.yaml" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte("apiVersion: v1\nkind: A\nmetadata: {name: web}\n"))
	}))
	defer srv.Close()
	for name, tc := range map[string]struct {
		s    Sources
		want []string
		err  string
	}{
		"Folder":    {s: Sources{Files: []string{dir}}, want: []string{"A/a", "A/b"}},
		"Recursive": {s: Sources{Files: []string{dir}, Recursive: true}, want: []string{"A/a", "A/b", "A/c"}},
		"Glob":      {s: Sources{Files: []string{filepath.Join(dir, "*.yaml")}}, want: []string{"A/b"}},
		"Stdin":     {s: Sources{Files: []string{"-"}, Stdin: strings.NewReader("apiVersion: v1\nkind: A\nmetadata: {name: in}\n")}, want: []string{"A/in"}},
		"URL":       {s: Sources{Files: []string{srv.URL + "/m.yaml"}}, want: []string{"A/web"}},
		"BadURL":    {s: Sources{Files: []string{srv.URL + "/x"}}, err: "server reported 404"},
		"Missing":   {s: Sources{Files: []string{"/no/such"}}, err: "cannot be read"},
		"Empty":     {s: Sources{Files: []string{"-"}, Stdin: strings.NewReader("# only words\n")}, err: "no objects in -"},
	} {
		t.Run(name, func(t *testing.T) {
			docs, err := tc.s.Read(context.Background())
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("got %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, names(docs)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: A\n---\n{}"))
	f.Add([]byte(`{"apiVersion":"v1","kind":"List","items":[1]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, err := Parse(data, "f")
		for _, d := range docs {
			if err == nil && d.Object.GetKind() == "" {
				t.Error("an object without a kind")
			}
		}
	})
}
