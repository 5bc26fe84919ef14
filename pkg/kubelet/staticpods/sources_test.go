package staticpods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

const noPods = "apiVersion: v1\nkind: PodList\n"

// server answers requests for manifests.
type server struct {
	mu   sync.Mutex
	code int
	body string
	err  error
	got  http.Header
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = r.Header
	if s.err != nil {
		return nil, s.err
	}
	return &http.Response{StatusCode: s.code, Status: fmt.Sprint(s.code), Body: io.NopCloser(strings.NewReader(s.body)), Request: r}, nil
}

// answer sets what the server answers from now on.
func (s *server) answer(code int, body string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.code, s.body, s.err = code, body, err
}

func (s *server) token() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.Get("X-Token")
}

// logged is a log that may be read while it is written.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// rig runs Sources over a directory and a server.
type rig struct {
	t       *testing.T
	dir     string
	server  *server
	log     *logged
	sources *Sources

	mu      sync.Mutex
	updates []string // since the last call of takes
}

func bubble(t *testing.T, f func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, dir: t.TempDir(), server: &server{code: http.StatusOK, body: noPods}, log: &logged{}}
		cfg := Manifests{Path: r.dir, URL: "https://user:password@example.org/pods?token=secret", Header: http.Header{"X-Token": {"secret"}}, Transport: r.server}
		r.sources = NewSources(cfg, "n1", func(old, pod *corev1.Pod) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if old != nil {
				r.updates = append(r.updates, "-"+old.Name)
			}
			if pod != nil {
				r.updates = append(r.updates, "+"+pod.Name)
			}
		}, slog.New(slog.NewTextHandler(r.log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { _ = r.sources.Run(ctx) })
		defer done.Wait()
		defer cancel()
		synctest.Wait()
		f(r)
	})
}

// next waits until all sources have been read once more.
func (r *rig) next() {
	time.Sleep(defaultPeriod)
	synctest.Wait()
}

func (r *rig) put(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// takes checks what has been started and ended since the last call.
func (r *rig) takes(want ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.updates)
	slices.Sort(want)
	if diff := cmp.Diff(want, r.updates); diff != "" {
		r.t.Errorf("updates (-want +got):\n%s", diff)
	}
	r.updates = nil
}

func named(name string) string { return strings.Replace(manifest("", ""), "web", name, 1) }

func TestDirectory(t *testing.T) {
	bubble(t, func(r *rig) {
		if !r.sources.Known() {
			t.Error("an empty directory is not known")
		}
		r.put("a.yaml", named("a"))
		r.put("b.json", `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b"},"spec":{"containers":[{"name":"app","image":"app"}]}}`)
		r.put(".c.yaml", named("c"))
		r.put("d.yaml", "nonsense")
		if err := errors.Join(os.Mkdir(filepath.Join(r.dir, "more"), 0o700), unix.Mkfifo(filepath.Join(r.dir, "fifo"), 0o600)); err != nil {
			t.Fatal(err)
		}
		r.next()
		r.takes("+a-n1", "+b-n1")
		r.next()
		r.takes()
		for _, file := range []string{"d.yaml", "fifo"} {
			if n := strings.Count(r.log.String(), "file="+filepath.Join(r.dir, file)); n != 1 {
				t.Errorf("%s is logged %d times:\n%s", file, n, r.log)
			}
		}
		r.put("a.yaml", "# the same\n"+named("a"))
		r.next()
		r.takes()
		r.put("a.yaml", named("e"))
		r.next()
		r.takes("-a-n1", "+e-n1")
		if err := os.Remove(filepath.Join(r.dir, "b.json")); err != nil {
			t.Fatal(err)
		}
		r.next()
		r.takes("-b-n1")
	})
}

// A manifest that is read while it is written does not end its pod; one that stays wrong
// does.
func TestHalfAManifest(t *testing.T) {
	bubble(t, func(r *rig) {
		r.put("a.yaml", named("a"))
		r.next()
		r.takes("+a-n1")
		r.put("a.yaml", named("a")[:30])
		r.next()
		r.takes()
		r.put("a.yaml", named("a"))
		r.next()
		r.takes()
		r.put("a.yaml", named("a")[:30])
		r.next()
		r.takes()
		r.next()
		r.takes("-a-n1")
	})
}

func TestOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.yaml")
	in := &files{path: path, node: "n1", log: slog.New(slog.DiscardHandler)}
	if pods, err := in.pods(now); len(pods) > 0 || err != nil {
		t.Errorf("a file that does not exist: %v, %v", pods, err)
	}
	if err := os.WriteFile(path, []byte(manifest("", "")), 0o600); err != nil {
		t.Fatal(err)
	}
	if pods, err := in.pods(now); len(pods) != 1 || err != nil {
		t.Errorf("%v, %v", pods, err)
	}
}

// Of two pods with one name or one uid, only the first runs.
func TestSameNames(t *testing.T) {
	bubble(t, func(r *rig) {
		r.put("a.yaml", named("a"))
		r.put("b.yaml", "# another file\n"+named("a"))
		r.put("c.yaml", strings.Replace(named("c"), "name: c", "name: c, uid: x", 1))
		r.put("d.yaml", strings.Replace(named("d"), "name: d", "name: d, uid: x", 1))
		r.next()
		r.takes("+a-n1", "+c-n1")
		r.next()
		if n := strings.Count(r.log.String(), "another static pod has this name or uid"); n != 2 {
			t.Errorf("%d errors:\n%s", n, r.log)
		}
		if err := os.Remove(filepath.Join(r.dir, "c.yaml")); err != nil {
			t.Fatal(err)
		}
		r.next()
		r.takes("-c-n1", "+d-n1")
	})
}

// A URL that cannot be read leaves its pods as they are, and its credentials are not logged.
func TestURL(t *testing.T) {
	bubble(t, func(r *rig) {
		r.server.answer(http.StatusOK, named("a"), nil)
		r.next()
		r.takes("+a-n1")
		if got := r.server.token(); got != "secret" {
			t.Errorf("the header is %q", got)
		}
		r.server.answer(0, "", errors.New("connection refused"))
		r.next()
		r.server.answer(http.StatusForbidden, "", nil)
		r.next()
		r.server.answer(http.StatusOK, "nonsense", nil)
		r.next()
		r.takes()
		for _, want := range []string{"connection refused", "the server answered 403", "cannot unmarshal"} {
			if !strings.Contains(r.log.String(), want) {
				t.Errorf("nothing is logged of %q:\n%s", want, r.log)
			}
		}
		if strings.Contains(r.log.String(), "secret") || strings.Contains(r.log.String(), "password") {
			t.Errorf("a credential is logged:\n%s", r.log)
		}
		r.server.answer(http.StatusOK, noPods, nil)
		r.next()
		r.takes("-a-n1")
	})
}

// While a URL has never been read, it is not known which pods there are.
func TestUnknownManifests(t *testing.T) {
	bubble(t, func(r *rig) {
		r.server.answer(0, "", errors.New("connection refused"))
		s := NewSources(r.sources.cfg, "n1", func(*corev1.Pod, *corev1.Pod) {}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(r.t.Context())
		var done sync.WaitGroup
		done.Go(func() { _ = s.Run(ctx) })
		defer done.Wait()
		defer cancel()
		r.next()
		if s.Known() {
			t.Error("they are known")
		}
		r.server.answer(http.StatusOK, noPods, nil)
		r.next()
		r.next()
		if !s.Known() {
			t.Error("they are not known")
		}
	})
}
