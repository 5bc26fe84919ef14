package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/request"
	"podium/pkg/client"
	"podium/pkg/scheme"
)

// collected is a backend that keeps the events it receives.
type collected struct {
	mu     sync.Mutex
	events []map[string]any
	writes int
	gate   chan struct{} // each Write receives from it; nil: Write does not block
	err    error
}

func (c *collected) Write(ctx context.Context, events [][]byte) error {
	if c.gate != nil {
		select {
		case <-c.gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes++
	if c.err != nil {
		return c.err
	}
	for _, e := range events {
		var event map[string]any
		if err := json.Unmarshal(e, &event); err != nil {
			return err
		}
		c.events = append(c.events, event)
	}
	return nil
}

func (c *collected) count() (events, writes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.events), c.writes
}

func auditor(level Level, b BackendConfig) *Auditor {
	b.Name = "test"
	return New(Config{
		Policy: &Policy{Rules: []Rule{{Level: level}}, OmitStages: []Stage{StageRequestReceived}},
		Scheme: scheme.New(), Log: slog.New(slog.DiscardHandler), Backends: []BackendConfig{b},
	})
}

// ask records one request, as the server does.
func (a *Auditor) ask(body string) error {
	r := httptest.NewRequest("POST", "/api/v1/namespaces/n/configmaps", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	req := request.New(request.Parse(r), http.Header{})
	trail, err := a.Begin(r, req, &request.User{Name: "ann"}, time.Now())
	if err != nil {
		return err
	}
	io.Copy(io.Discard, r.Body)
	trail.Started(201, http.Header{})
	trail.Ended(201)
	return nil
}

func (a *Auditor) start(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); a.Run(ctx) }()
	return func() { cancel(); <-done }
}

func TestQueueThatIsFullDropsAndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &collected{gate: make(chan struct{})}
		a := auditor(LevelMetadata, BackendConfig{Backend: out, Mode: ModeBatch, BufferSize: 10, BatchSize: 1})
		stop := a.start(t)
		a.ask("") // this event blocks in the backend
		synctest.Wait()
		began := time.Now()
		for range 25 {
			if err := a.ask(""); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("requests waited %v for a backend that hangs", took)
		}
		if lost := testutil.ToFloat64(a.metrics.errors.WithLabelValues("test")); lost != 15 {
			t.Errorf("%v events are counted as lost, want 15 of 25 that had 10 places", lost)
		}
		close(out.gate)
		stop()
		if n, _ := out.count(); n != 12 {
			t.Errorf("%d events were written, want all 11 that found a place, also those queued at the end, and the report", n)
		}
		if got := out.reports(annotationLost); got != 15 {
			t.Errorf("%d lost events are reported, want 15", got)
		}
	})
}

// reports returns the sum of the numbers in the report events with an
// annotation.
func (c *collected) reports(annotation string) (sum int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		annotations, _ := e["annotations"].(map[string]any)
		text, _ := annotations[annotation].(string)
		n, _ := strconv.Atoi(text)
		sum += n
	}
	return sum
}

// Under a lasting flood, losses are reported twice a minute and when the
// backend has caught up. What a failing backend has lost is reported when it
// works again.
func TestLossesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &collected{}
		var log bytes.Buffer
		b := BackendConfig{Name: "test", Backend: out, Mode: ModeBatch, BufferSize: 10, BatchSize: 5, QPS: 1, Burst: 1}
		a := New(Config{
			Policy: &Policy{Rules: []Rule{{Level: LevelMetadata}}, OmitStages: []Stage{StageRequestReceived}},
			Scheme: scheme.New(), Log: slog.New(slog.NewTextHandler(&log, nil)), Backends: []BackendConfig{b},
		})
		stop := a.start(t)
		const asked = 600
		for range asked { // ten per second, of which five are written
			a.ask("")
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		written, _ := out.count()
		lost := out.reports(annotationLost)
		reports := written - (asked - lost)
		if lost == 0 || lost != int(testutil.ToFloat64(a.metrics.errors.WithLabelValues("test"))) || reports < 2 || reports > 5 {
			t.Errorf("%d of %d requests have no event, in %d reports", lost, asked, reports)
		}
		out.fail(errors.New("disk full"))
		a.ask("")
		time.Sleep(2 * time.Second)
		out.fail(nil)
		a.ask("")
		time.Sleep(2 * time.Second)
		if got := out.reports(annotationLost); got != lost+1 {
			t.Errorf("%d lost events are reported, want one more than %d", got, lost)
		}
		out.fail(errors.New("disk full"))
		for range 100 {
			a.ask("")
			time.Sleep(100 * time.Millisecond)
		}
		stop()
		if lines := strings.Count(log.String(), "\n"); lines < 2 || lines > 12 {
			t.Errorf("%d log lines about losses in a minute: %s", lines, log.String())
		}
	})
}

func (c *collected) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// Any number of unauthenticated requests, over any time, makes the log grow
// only slowly. The log contains their number and the records of other requests.
func TestUnauthenticatedRequestsCannotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &collected{}
		a := auditor(LevelMetadata, BackendConfig{Backend: out, Mode: ModeBatch, BufferSize: 10000, BatchSize: 400})
		stop := a.start(t)
		send := func(user *request.User) {
			long := strings.Repeat("\xff", 20_000)
			r := httptest.NewRequest("GET", "/api/v1/namespaces/n/secrets/x", nil)
			r.URL.Path, r.RequestURI = "/api/v1/namespaces/n/secrets/"+long, "/api/v1/namespaces/n/secrets/"+long
			r.Header.Set("User-Agent", long)
			r.Header.Set("X-Forwarded-For", strings.Repeat("192.0.2.1,", 2000))
			req := request.New(request.Parse(r), http.Header{})
			trail, err := a.Begin(r, req, user, time.Now())
			if err != nil {
				t.Error(err)
			}
			trail.Failed(&metav1.Status{Message: long, Details: &metav1.StatusDetails{Name: long}})
			trail.Started(401, http.Header{})
			trail.Ended(401)
		}
		const flood = 1000
		for i := range flood { // ten per second
			if i%2 == 0 {
				send(nil)
			} else {
				send(&request.User{Name: request.AnonymousUser, Groups: []string{request.Unauthenticated}})
			}
			if i%100 == 0 {
				send(&request.User{Name: "ann"})
			}
			time.Sleep(100 * time.Millisecond)
		}
		stop()
		recorded, known := 0, 0
		for _, e := range out.events {
			line, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			switch user, _ := e["user"].(map[string]any); user["username"] {
			case "ann":
				known++
				if len(line) > 64<<10 {
					t.Errorf("a record has %d bytes", len(line))
				}
			case nil, request.AnonymousUser:
				recorded++
				if len(line) > 16<<10 {
					t.Errorf("an unauthenticated request's record has %d bytes", len(line))
				}
			}
		}
		suppressed := out.reports(annotationSuppressed)
		if known != flood/100 || recorded > unauthenticatedBurst+101*unauthenticatedPerSecond || recorded+suppressed != flood {
			t.Errorf("%d of ann, %d unauthenticated and %d suppressed are in the log", known, recorded, suppressed)
		}
		if n := testutil.ToFloat64(a.metrics.suppressed); int(n) != suppressed {
			t.Errorf("the metric says %v, the log %d", n, suppressed)
		}
	})
}

func TestQueueIsBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &collected{gate: make(chan struct{})}
		a := auditor(LevelRequest, BackendConfig{Backend: out, Mode: ModeBatch, BufferSize: 10000, BufferMax: 4 << 20, BatchSize: 1})
		stop := a.start(t)
		body := `{"data":{"a":"` + strings.Repeat("x", 64<<10) + `"}}`
		for range 84 {
			a.ask(body)
		}
		if q := a.queues[0]; q.bytes.Load() > q.BufferMax || len(q.events) < 20 {
			t.Errorf("%d events of %d bytes are queued, at most %d bytes are allowed", len(q.events), q.bytes.Load(), q.BufferMax)
		}
		close(out.gate)
		stop()
		if left := a.queues[0].bytes.Load(); left != 0 {
			t.Errorf("an empty queue holds %d bytes", left)
		}
	})
}

func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &collected{}
		a := auditor(LevelMetadata, BackendConfig{Backend: out, Mode: ModeBatch, BufferSize: 1000, BatchSize: 4, BatchWait: 30 * time.Second, QPS: 1, Burst: 1})
		stop := a.start(t)
		steps := []struct {
			reason string
			do     func()
			want   [2]int // events, writes
		}{
			{"one waits for others", func() { a.ask(""); time.Sleep(29 * time.Second) }, [2]int{0, 0}},
			{"but not for ever", func() { time.Sleep(2 * time.Second) }, [2]int{1, 1}},
			{"a full batch does not wait", func() {
				for range 4 {
					a.ask("")
				}
				time.Sleep(time.Second)
			}, [2]int{5, 2}},
			{"more batches come one a second", func() {
				for range 12 {
					a.ask("")
				}
				time.Sleep(2500 * time.Millisecond)
			}, [2]int{17, 5}},
			{"the end writes what is left", func() { a.ask(""); stop() }, [2]int{18, 6}},
		}
		for _, s := range steps {
			s.do()
			events, writes := out.count()
			if diff := cmp.Diff(s.want, [2]int{events, writes}); diff != "" {
				t.Errorf("%s: events and writes (-want +got):\n%s", s.reason, diff)
			}
		}
	})
}

func TestBlockingModes(t *testing.T) {
	for mode, refused := range map[string]bool{ModeBlocking: false, ModeBlockingStrict: true} {
		out := &collected{}
		a := auditor(LevelMetadata, BackendConfig{Backend: out, Mode: mode})
		a.policy.OmitStages = nil
		if err := a.ask(""); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		if n, _ := out.count(); n != 2 {
			t.Errorf("%s: %d events are written when the request ends, want 2", mode, n)
		}
		out.err = errors.New("the disk is full")
		if err := a.ask(""); errors.Is(err, ErrRejected) != refused {
			t.Errorf("%s: when the backend fails: %v; refused is wanted: %v", mode, err, refused)
		}
	}
}

// answers is a service that returns a sequence of responses.
type answers struct {
	mu    sync.Mutex
	codes []int // 0: the connection fails
	asked []time.Duration
	began time.Time
	body  []byte
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, time.Since(a.began).Truncate(time.Second))
	a.body, _ = io.ReadAll(r.Body)
	code := a.codes[0]
	a.codes = a.codes[1:]
	if code == 0 {
		return nil, errors.New("connection reset")
	}
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Body: http.NoBody, Request: r}, nil
}

func TestWebhook(t *testing.T) {
	for name, row := range map[string]struct {
		codes []int
		asked int
		ok    bool
	}{
		"it answers":           {[]int{200}, 1, true},
		"it fails, then not":   {[]int{0, 503, 429, 204}, 4, true},
		"it fails for good":    {[]int{500, 500, 500, 500, 500}, 5, false},
		"it refuses":           {[]int{400}, 1, false},
		"it sends us away":     {[]int{302}, 1, false},
		"it wants to know who": {[]int{401}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := &answers{codes: row.codes, began: time.Now()}
				hook, err := NewWebhook(client.Config{Servers: []string{"https://audit.test/events"}, Transport: service}, 10*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				err = hook.Write(t.Context(), [][]byte{[]byte(`{"auditID":"1"}`), []byte(`{"auditID":"2"}`)})
				if (err == nil) != row.ok || len(service.asked) != row.asked {
					t.Errorf("asked %d times, %v", len(service.asked), err)
				}
				var list struct {
					Kind, APIVersion string
					Items            []struct{ AuditID string }
				}
				if err := json.Unmarshal(service.body, &list); err != nil || list.Kind != "EventList" || list.APIVersion != "audit.k8s.io/v1" || len(list.Items) != 2 {
					t.Errorf("it was sent %s (%v)", service.body, err)
				}
				if len(service.asked) > 1 && service.asked[1] < 10*time.Second {
					t.Errorf("asked again after %v", service.asked[1])
				}
			})
		})
	}
}

func TestNoTokensInAddresses(t *testing.T) {
	for uri, want := range map[string]string{
		"/api/v1/pods?watch=true":                   "/api/v1/pods?watch=true",
		"/x?access_token=abc&limit=1":               "/x?access_token=REDACTED&limit=1",
		"/x?Token=abc":                              "/x?Token=REDACTED",
		"/x?%74oken=abc":                            "/x?%74oken=REDACTED",
		"/x?continue=abc&labelSelector=a%3Dtoken":   "/x?continue=abc&labelSelector=a%3Dtoken",
		"/api/v1/namespaces/n/serviceaccounts/a/tk": "/api/v1/namespaces/n/serviceaccounts/a/tk",
	} {
		if got := withoutTokens(uri); got != want {
			t.Errorf("%s becomes %s, want %s", uri, got, want)
		}
	}
}

// FuzzEvent checks that the event of any request is one line of valid JSON.
func FuzzEvent(f *testing.F) {
	f.Add("/api/v1/namespaces/n/configmaps?a=b", "curl/8", "10.0.0.1, evil\n", "application/json", []byte(`{"kind":"ConfigMap"}`))
	f.Add("/x", "a\"\n{", "::1", "application/yaml", []byte("a: b"))
	f.Add("/api/v1/namespaces/n/configmaps", "x", "", "application/vnd.kubernetes.protobuf", []byte("k8s\x00\n"))
	d := &bodies{scheme.New()}
	f.Fuzz(func(t *testing.T, uri, agent, forwarded, media string, data []byte) {
		e := Event{
			Level: LevelRequest, Stage: StageResponseComplete, AuditID: agent, RequestURI: uri, UserAgent: shorten(agent, maxUserAgent),
			User: &request.User{Name: forwarded, Extra: map[string][]string{agent: {uri}, uri: nil}}, Info: &request.Info{IsResource: true, Name: uri},
			from: from{forwarded: forwarded, remote: agent}, Annotations: map[string]string{media: uri},
			request: &body{data: data, media: media}, omitManagedFields: true,
		}
		line := e.AppendJSON(nil, d)
		if !json.Valid(line) || bytes.ContainsAny(line, "\n\r") {
			t.Errorf("not a line of JSON: %q", line)
		}
	})
}
