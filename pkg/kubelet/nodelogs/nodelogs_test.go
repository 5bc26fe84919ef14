package nodelogs

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func now() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// journal has entries of the unit kubelet only, and shows with which arguments it was
// asked.
func journal(_ context.Context, args []string, w io.Writer) error {
	line := strings.Join(args, " ")
	switch {
	case strings.Contains(line, "--quiet") && strings.Contains(line, "--unit=kubelet"):
		fmt.Fprintln(w, "an entry")
	case !strings.Contains(line, "--quiet"):
		fmt.Fprintln(w, "journalctl "+line)
	}
	return nil
}

func noJournal(context.Context, []string, io.Writer) error {
	return fmt.Errorf("journalctl: %w", exec.ErrNotFound)
}

func TestQueries(t *testing.T) {
	files := fstest.MapFS{
		"app.log": {Data: []byte("app's log\n")}, "web/web.log": {Data: []byte("web's log\n")}, "plain": {Data: []byte("plain log\n")},
	}
	const base = "journalctl --utc --no-pager --output=short-precise "
	for name, row := range map[string]struct {
		query string
		code  int
		want  string
	}{
		"Service":       {"query=kubelet", 200, base + "--unit=kubelet\n"},
		"Services":      {"query=kubelet&query=containerd.service", 200, base + "--unit=kubelet --unit=containerd.service\n"},
		"Options":       {"query=kubelet&sinceTime=2026-01-01T01:00:00%2B01:00&untilTime=2026-01-02T00:00:00Z&tailLines=7&boot=-1&pattern=a+b", 200, base + "--since=2026-01-01 00:00:00 UTC --until=2026-01-02 00:00:00 UTC --lines=7 --unit=kubelet --case-sensitive=false --grep=a b --boot=-1\n"},
		"OptionAsValue": {"query=kubelet&pattern=--file%3D/etc/shadow", 200, base + "--unit=kubelet --case-sensitive=false --grep=--file=/etc/shadow\n"},
		"File":          {"query=/web/web.log", 200, "web's log\n"},
		"NamedFile":     {"query=plain", 200, "plain log\n"},
		"LogFile":       {"query=app", 200, "app's log\n"},
		"LogInFolder":   {"query=web", 200, "web's log\n"},
		"Nothing":       {"query=other", 404, "neither the journal nor /var/log has logs of other: file does not exist\n"},
		"OnlyJournal":   {"query=app&tailLines=1", 404, "the journal has no entries of [\"app\"]: file does not exist\n"},
		"Folder":        {"query=web/", 406, "query \"web/\" is not the path of a file below /var/log\n"},
		"Backsteps":     {"query=/../../etc/shadow", 406, "query \"/../../etc/shadow\" is not the path of a file below /var/log\n"},
		"Option":        {"query=--file", 406, "query \"--file\" is not the name of a service\n"},
		"Glob":          {"query=*", 406, "query \"*\" is not the name of a service\n"},
		"FileOptions":   {"query=/app.log&tailLines=1", 406, "sinceTime, untilTime, boot, pattern and tailLines apply to services only\n"},
		"TwoFiles":      {"query=/app.log&query=/plain", 406, "query names a file: only one can be read at a time\n"},
		"FiveServices":  {"query=a&query=b&query=c&query=d&query=e", 406, "query: at most 4 services\n"},
		"Pattern":       {"query=kubelet&pattern=(a", 406, "pattern \"(a\": want a regular expression of RE2\n"},
		"Future":        {"query=kubelet&sinceTime=2030-01-01T00:00:00Z", 406, "sinceTime \"2030-01-01T00:00:00Z\" is in the future\n"},
		"Boot":          {"query=kubelet&boot=1", 406, "boot \"1\": want 0 or a negative number\n"},
		"Unknown":       {"query=kubelet&follow=1", 406, "unknown parameter \"follow\"\n"},
	} {
		h := &Handler{Journal: journal, Files: files, Now: now}
		res := httptest.NewRecorder()
		h.ServeHTTP(res, httptest.NewRequest(http.MethodGet, "/logs/?"+row.query, nil))
		if diff := cmp.Diff(row.want, res.Body.String()); res.Code != row.code || diff != "" {
			t.Errorf("%s: %d (-want +got):\n%s", name, res.Code, diff)
		}
	}
	h := &Handler{Journal: noJournal, Files: files, Now: now}
	res := httptest.NewRecorder()
	h.ServeHTTP(res, httptest.NewRequest(http.MethodGet, "/logs/?query=app", nil))
	if res.Body.String() != "app's log\n" {
		t.Errorf("without a journal: %d %s", res.Code, res.Body)
	}
}

// No query makes journalctl take an argument that is not one of its expected options.
func FuzzParse(f *testing.F) {
	f.Add("query=kubelet&sinceTime=2026-01-01T00:00:00Z&tailLines=7&boot=-1&pattern=a")
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		q, err := Parse(values, now())
		if err != nil {
			return
		}
		for _, arg := range q.journalctl() {
			name, _, _ := strings.Cut(arg, "=")
			switch name {
			case "--utc", "--no-pager", "--output", "--since", "--until", "--lines", "--unit", "--case-sensitive", "--grep", "--boot":
			default:
				t.Errorf("argument %q of %q", arg, text)
			}
			if strings.ContainsRune(arg, 0) {
				t.Errorf("argument %q has a NUL", arg)
			}
		}
	})
}
