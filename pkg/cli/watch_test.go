package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"podium/pkg/cli"
	"podium/pkg/client/kubeconfig"
)

// A watch prints the present objects, then a line for each change, in the same
// columns.
func TestGetWatch(t *testing.T) {
	address, stop := serve(t)
	defer stop()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	if err := kubeconfig.New("x", kubeconfig.Cluster{Server: "http://" + address}, kubeconfig.User{}).Write(config, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) {
		t.Helper()
		var out bytes.Buffer
		if code := cli.Main(t.Context(), cli.IO{Out: &out, Err: &out}, append([]string{"--kubeconfig", config}, args...)); code != 0 {
			t.Fatalf("podium %s: exit code %d: %s", strings.Join(args, " "), code, out.String())
		}
	}
	run("create", "configmap", "a", "--from-literal=x=1")

	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() {
		code <- cli.Main(ctx, cli.IO{Out: w, Err: io.Discard}, []string{"--kubeconfig", config, "get", "cm", "-w", "--output-watch-events"})
		w.Close()
	}()
	lines := bufio.NewScanner(r)
	next := func() string {
		t.Helper()
		if !lines.Scan() {
			t.Fatal("the watch ended")
		}
		return strings.Join(strings.Fields(lines.Text())[:2], " ")
	}
	for _, want := range []struct {
		do   []string
		line string
	}{
		{nil, "EVENT NAME"},
		{nil, "ADDED a"},
		{[]string{"create", "configmap", "longer-name"}, "ADDED longer-name"},
		{[]string{"label", "cm", "a", "l=1"}, "MODIFIED a"},
		{[]string{"delete", "cm", "a"}, "DELETED a"},
	} {
		if want.do != nil {
			run(want.do...)
		}
		if got := next(); got != want.line {
			t.Errorf("after %v: got %q, want %q", want.do, got, want.line)
		}
	}
	cancel()
	if got := <-code; got != 130 {
		t.Errorf("Ctrl-C: exit code %d, want 130", got)
	}
	_ = r.Close()
}

// events --watch -o prints each event as an object of its own: the present ones, then the
// later ones, of the wanted types only.
func TestEventsWatchInFormat(t *testing.T) {
	address, stop := serve(t)
	defer stop()
	dir := t.TempDir()
	config := filepath.Join(dir, "kubeconfig")
	if err := kubeconfig.New("x", kubeconfig.Cluster{Server: "http://" + address}, kubeconfig.User{}).Write(config, 0o600); err != nil {
		t.Fatal(err)
	}
	create := func(name, kind string) {
		t.Helper()
		text := `{"apiVersion": "v1", "kind": "Event", "metadata": {"name": "` + name + `"}, "type": "` + kind + `",
			"reason": "` + name + `", "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}}`
		var out bytes.Buffer
		streams := cli.IO{In: strings.NewReader(text), Out: &out, Err: &out}
		if code := cli.Main(t.Context(), streams, []string{"--kubeconfig", config, "create", "-f", "-"}); code != 0 {
			t.Fatalf("create event %s: exit code %d: %s", name, code, out.String())
		}
	}
	create("before", "Warning")
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() {
		code <- cli.Main(ctx, cli.IO{Out: w, Err: io.Discard}, []string{"--kubeconfig", config, "events", "--watch", "--types=Warning", "-o", "name"})
		w.Close()
	}()
	lines := bufio.NewScanner(r)
	for _, want := range []string{"event/before", "event/after"} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("got %q, want %q", lines.Text(), want)
		}
		if want == "event/before" {
			create("quiet", "Normal")
			create("after", "Warning")
		}
	}
	cancel()
	if got := <-code; got != 130 {
		t.Errorf("Ctrl-C: exit code %d, want 130", got)
	}
}
