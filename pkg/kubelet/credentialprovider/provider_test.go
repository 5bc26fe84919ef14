package credentialprovider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"podium/pkg/kubelet/images"
)

const head = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n"

func TestConfig(t *testing.T) {
	const good = "name: a, matchImages: ['*.example.org:5000/team'], defaultCacheDuration: 1h, apiVersion: credentialprovider.kubelet.k8s.io/v1"
	for name, row := range map[string]struct{ text, want string }{
		"Good":           {head + "providers: [{" + good + ", args: [get], env: [{name: A, value: b}]}]", ""},
		"OtherKind":      {"apiVersion: v1\nkind: Secret\n", "want apiVersion: kubelet.config.k8s.io/v1"},
		"UnknownField":   {head + "provider: []", "unknown field"},
		"None":           {head, "at least 1 is required"},
		"Twice":          {head + "providers: [{" + good + "}, {" + good + "}]", `name "a" appears twice`},
		"Path":           {head + "providers: [{" + strings.Replace(good, "name: a", "name: ../a", 1) + "}]", "is not the name of a file"},
		"NoImages":       {head + "providers: [{name: a, defaultCacheDuration: 1h, apiVersion: credentialprovider.kubelet.k8s.io/v1}]", "matchImages: at least 1"},
		"PatternInPath":  {head + "providers: [{" + strings.Replace(good, "/team", "/*", 1) + "}]", "only the host may have patterns"},
		"NoDuration":     {head + "providers: [{name: a, matchImages: [a.b], apiVersion: credentialprovider.kubelet.k8s.io/v1}]", "defaultCacheDuration is required"},
		"Negative":       {head + "providers: [{" + strings.Replace(good, "1h", "-1h", 1) + "}]", "is negative"},
		"OldProtocol":    {head + "providers: [{" + strings.Replace(good, "k8s.io/v1", "k8s.io/v1alpha1", 1) + "}]", "want credentialprovider.kubelet.k8s.io/v1"},
		"ServiceAccount": {head + "providers: [{" + good + ", tokenAttributes: {serviceAccountTokenAudience: x}}]", "tokenAttributes is not supported"},
		"Variable":       {head + "providers: [{" + good + ", env: [{name: A=B}]}]", "is not the name of a variable"},
	} {
		_, err := parse([]byte(row.text))
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
}

// programs are the answers of programs by name, and a record of what they were asked.
type programs struct {
	mu      sync.Mutex
	answers map[string]string
	asked   []string
	takes   time.Duration
}

func (p *programs) run(ctx context.Context, path string, args, env []string, input []byte) ([]byte, error) {
	select {
	case <-time.After(p.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var r request
	if err := json.Unmarshal(input, &r); err != nil || r.Kind != "CredentialProviderRequest" {
		return nil, fmt.Errorf("input %q: %w", input, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, strings.Join(append([]string{filepath.Base(path), r.Image}, append(args, env...)...), " "))
	answer, ok := p.answers[filepath.Base(path)]
	if !ok {
		return nil, errors.New("exit status 1")
	}
	return []byte(answer), nil
}

func answer(kind, duration, server string) string {
	return fmt.Sprintf(`{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":%q,%s"auth":{%q:{"username":"u","password":"hunter2"}}}`, kind, duration, server)
}

func newProviders(t *testing.T, p *programs, text string) (*Providers, *bytes.Buffer) {
	t.Helper()
	dir, log := t.TempDir(), &bytes.Buffer{}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(head+text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	out, err := New(Config{File: file, Dir: dir, Run: p.run, Now: time.Now, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return out, log
}

func TestCredentials(t *testing.T) {
	const config = `providers:
  - {name: a, matchImages: ["*.example.org"], defaultCacheDuration: 10m, apiVersion: credentialprovider.kubelet.k8s.io/v1, args: [get], env: [{name: K, value: v}]}
  - {name: b, matchImages: [r.example.org/team], defaultCacheDuration: 0s, apiVersion: credentialprovider.kubelet.k8s.io/v1}
`
	for name, row := range map[string]struct {
		reason  string
		answers map[string]string
		images  []string // asked for, a minute apart
		want    []string // what the programs were asked
		found   int      // answers for the last image
	}{
		"PerImage": {
			reason: "the default duration keeps the answer for an image", answers: map[string]string{"a": answer("Image", "", "x.example.org")},
			images: []string{"x.example.org/p", "x.example.org/p", "x.example.org/q"},
			want:   []string{"a x.example.org/p get K=v", "a x.example.org/q get K=v"}, found: 1,
		},
		"PerRegistry": {
			reason: "one answer for all images of a registry", answers: map[string]string{"a": answer("Registry", "", "x.example.org")},
			images: []string{"x.example.org/p", "x.example.org/q", "y.example.org/p"},
			want:   []string{"a x.example.org/p get K=v", "a y.example.org/p get K=v"}, found: 1,
		},
		"Global": {
			reason: "one answer for everything", answers: map[string]string{"a": answer("Global", "", "*.example.org")},
			images: []string{"x.example.org/p", "y.example.org/q"}, want: []string{"a x.example.org/p get K=v"}, found: 1,
		},
		"Expired": {
			reason: "the answer holds for a minute", answers: map[string]string{"a": answer("Image", `"cacheDuration":"1m0s",`, "x.example.org")},
			images: []string{"x.example.org/p", "x.example.org/p"}, want: []string{"a x.example.org/p get K=v", "a x.example.org/p get K=v"}, found: 1,
		},
		"NotCached": {
			reason: "0 means that it must not be kept", answers: map[string]string{"a": answer("Image", `"cacheDuration":"0s",`, "x.example.org")},
			images: []string{"x.example.org/p", "x.example.org/p"}, want: []string{"a x.example.org/p get K=v", "a x.example.org/p get K=v"}, found: 1,
		},
		"NoMatch": {reason: "no program is run for other registries", images: []string{"docker.io/library/p"}},
		"Both": {
			reason: "all programs that match are asked, and one that fails is left out", answers: map[string]string{"b": answer("Image", "", "r.example.org")},
			images: []string{"r.example.org/team/p"}, want: []string{"a r.example.org/team/p get K=v", "b r.example.org/team/p"}, found: 1,
		},
		"Nonsense": {
			reason: "an answer without a cache key is none", answers: map[string]string{"a": answer("Sometimes", "", "hunter2")},
			images: []string{"x.example.org/p"}, want: []string{"a x.example.org/p get K=v"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &programs{answers: row.answers}
				providers, log := newProviders(t, p, config)
				var found []images.Auths
				for _, image := range row.images {
					found = providers.Credentials(t.Context(), image)
					time.Sleep(time.Minute)
				}
				if diff := cmp.Diff(row.want, p.asked); diff != "" {
					t.Errorf("%s (-want +got):\n%s", row.reason, diff)
				}
				if len(found) != row.found {
					t.Errorf("%s: found %v", row.reason, found)
				}
				if strings.Contains(log.String(), "hunter2") {
					t.Errorf("the log has a password: %s", log)
				}
			})
		})
	}
}

// Pods that start at the same time share one run of the program, which a pod that is
// deleted meanwhile does not end.
func TestConcurrentPullsShareARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &programs{answers: map[string]string{"a": answer("Image", "", "x.example.org")}, takes: 10 * time.Second}
		providers, _ := newProviders(t, p, "providers: [{name: a, matchImages: [x.example.org], defaultCacheDuration: 1h, apiVersion: credentialprovider.kubelet.k8s.io/v1}]")
		first, cancel := context.WithCancel(t.Context())
		results := make(chan int, 2)
		go func() { results <- len(providers.Credentials(first, "x.example.org/p")) }()
		synctest.Wait()
		go func() { results <- len(providers.Credentials(t.Context(), "x.example.org/p")) }()
		synctest.Wait()
		cancel()
		if n := <-results; n != 0 {
			t.Errorf("a pull that ended got %d answers", n)
		}
		if n := <-results; n != 1 || len(p.asked) != 1 {
			t.Errorf("%d answers after %q", n, p.asked)
		}
	})
}

// A program that hangs or that writes without end is stopped.
func TestProgramsAreBounded(t *testing.T) {
	dir := t.TempDir()
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	out, err := Exec(t.Context(), script("echo", `cat; echo " $1 $K"`), []string{"arg"}, []string{"K=v"}, []byte("input"))
	if err != nil || string(out) != "input arg v\n" {
		t.Errorf("%q, %v", out, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Exec(ctx, script("hang", "sleep 3600"), nil, nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a program that hangs: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := Exec(ctx, script("flood", "cat /dev/zero"), nil, nil, nil); err == nil || !strings.Contains(err.Error(), "exceeds") {
		t.Errorf("a program that writes without end: %v", err)
	}
	if _, err := Exec(t.Context(), script("fail", "echo hunter2; echo hunter2 >&2; exit 3"), nil, nil, nil); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a program that fails: %v", err)
	}
}

func FuzzResponse(f *testing.F) {
	f.Add([]byte(answer("Image", "", "a.b")))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := parseResponse(data); err == nil {
			for pattern := range r.Auth {
				images.Matches(pattern, "registry.example.org/p")
			}
		}
	})
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(head + "providers: [{name: a, matchImages: ['*.b'], defaultCacheDuration: 1h, apiVersion: credentialprovider.kubelet.k8s.io/v1}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parse(data)
		if err != nil {
			return
		}
		for i := range c.Providers {
			c.Providers[i].matches("registry.example.org/p")
		}
	})
}
