package streams_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podium/pkg/client/remotecommand"
)

const execPath = "/api/v1/namespaces/ns/pods/p/exec"

func in(container string, cmd ...string) url.Values {
	return url.Values{"container": {container}, "command": cmd}
}

// both runs a test over WebSocket and over SPDY, each in a bubble, which does not end before all
// goroutines have ended.
func both(t *testing.T, run func(*process) int, test func(t *testing.T, s *stack)) {
	for _, noSocket := range []bool{false, true} {
		name := "WebSocket"
		if noSocket {
			name = "SPDY"
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStack(t, &memory{}, run)
				s.noSocket = noSocket
				test(t, s)
				time.Sleep(time.Minute) // both ends of a pipe that send a close at once would wait for each other
				s.close()
				time.Sleep(time.Minute) // what is left after this is leaked
			})
		})
	}
}

func TestExec(t *testing.T) {
	run := func(p *process) int {
		fmt.Fprint(p.stdout, "out ", strings.Join(p.cmd, "|"))
		fmt.Fprint(p.stderr, "err")
		if p.cmd[0] == "fail" {
			return 3
		}
		return 0
	}
	both(t, run, func(t *testing.T, s *stack) {
		var out, errs bytes.Buffer
		err := remotecommand.Stream(t.Context(), s.client, execPath, in("c", "a b", "c"), remotecommand.Streams{Out: &out, Err: &errs})
		if err != nil || out.String() != "out a b|c" || errs.String() != "err" {
			t.Errorf("got %q, %q, %v", out.String(), errs.String(), err)
		}
		err = remotecommand.Stream(t.Context(), s.client, execPath, in("c", "fail"), remotecommand.Streams{Out: &out, Err: &errs})
		var exit *remotecommand.ExitError
		if !errors.As(err, &exit) || exit.Code != 3 {
			t.Errorf("exit code 3 came as %v", err)
		}
	})
}

func TestExecInput(t *testing.T) {
	run := func(p *process) int { // like sort: writes nothing before its input has ended
		data, err := io.ReadAll(p.stdin)
		if err != nil {
			return 1
		}
		p.stdout.Write(data)
		return 0
	}
	both(t, run, func(t *testing.T, s *stack) {
		data := make([]byte, 3<<20+17)
		rand.Read(data)
		var out bytes.Buffer
		err := remotecommand.Stream(t.Context(), s.client, execPath, in("c", "sort"), remotecommand.Streams{In: bytes.NewReader(data), Out: &out})
		if err != nil || !bytes.Equal(out.Bytes(), data) {
			t.Errorf("sent %d bytes, got %d, %v", len(data), out.Len(), err)
		}
	})
}

func TestExecDoesNotWaitForItsInput(t *testing.T) {
	both(t, func(p *process) int { return 7 }, func(t *testing.T, s *stack) {
		never, w := io.Pipe()
		var exit *remotecommand.ExitError
		err := remotecommand.Stream(t.Context(), s.client, execPath, in("c", "x"), remotecommand.Streams{In: never, Out: io.Discard})
		if !errors.As(err, &exit) || exit.Code != 7 {
			t.Errorf("got %v", err)
		}
		w.Close()
	})
}

// A command that does not read its input, and ends while the client floods it.
func TestExecFloodedInput(t *testing.T) {
	run := func(p *process) int {
		time.Sleep(time.Second)
		fmt.Fprint(p.stdout, "done")
		return 4
	}
	both(t, run, func(t *testing.T, s *stack) {
		var out bytes.Buffer
		var exit *remotecommand.ExitError
		err := remotecommand.Stream(t.Context(), s.client, execPath, in("c", "x"), remotecommand.Streams{In: &endless{until: time.Now().Add(time.Minute)}, Out: &out})
		if !errors.As(err, &exit) || exit.Code != 4 || out.String() != "done" {
			t.Errorf("got %q, %v", out.String(), err)
		}
	})
}

type endless struct{ until time.Time }

func (e *endless) Read(p []byte) (int, error) {
	if time.Now().After(e.until) {
		return 0, io.EOF
	}
	return len(p), nil
}

// full is a disk without free space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// A client that cannot write the output ends the stream with that error, also while the server
// continues to send.
func TestExecOutputThatCannotBeWritten(t *testing.T) {
	run := func(p *process) int {
		for range 100 {
			if _, err := p.stdout.Write(make([]byte, 64<<10)); err != nil {
				return 1
			}
		}
		return 0
	}
	both(t, run, func(t *testing.T, s *stack) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan error, 1)
		go func() {
			done <- remotecommand.Stream(ctx, s.client, execPath, in("c", "x"), remotecommand.Streams{Out: full{}})
		}()
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), "no space left") {
				t.Errorf("got %v", err)
			}
		case <-time.After(2 * time.Minute):
			t.Fatal("the stream does not end")
		}
	})
}

func TestTerminal(t *testing.T) {
	run := func(p *process) int {
		for range 2 {
			size := <-p.sizes
			fmt.Fprintf(p.stdout, "%dx%d ", size.Width, size.Height)
		}
		line := make([]byte, 5)
		io.ReadFull(p.stdin, line)
		fmt.Fprintf(p.stdout, "%s stderr=%v", line, p.stderr != nil)
		return 0
	}
	both(t, run, func(t *testing.T, s *stack) {
		for _, path := range []string{execPath, "/api/v1/namespaces/ns/pods/p/attach"} {
			sizes := make(chan remotecommand.Size, 2)
			sizes <- remotecommand.Size{Width: 80, Height: 24}
			sizes <- remotecommand.Size{Width: 100, Height: 40}
			var out bytes.Buffer
			err := remotecommand.Stream(t.Context(), s.client, path, in("tty", "sh"), remotecommand.Streams{
				In: strings.NewReader("hello"), Out: &out, Err: io.Discard, TTY: true, Resize: sizes})
			if err != nil || out.String() != "80x24 100x40 hello stderr=false" {
				t.Errorf("%s: got %q, %v", path, out.String(), err)
			}
		}
	})
}

func TestClientVanishes(t *testing.T) {
	ended := make(chan string, 2)
	run := func(p *process) int {
		fmt.Fprint(p.stdout, "running")
		<-p.gone
		ended <- "told"
		return 0
	}
	both(t, run, func(t *testing.T, s *stack) {
		ctx, cancel := context.WithCancel(t.Context())
		began := &signal{begun: make(chan struct{})}
		result := make(chan error, 1)
		go func() {
			result <- remotecommand.Stream(ctx, s.client, execPath, in("c", "sleep"), remotecommand.Streams{Out: began})
		}()
		<-began.begun
		start := time.Now()
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("the client's own call gave %v", err)
		}
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("the command was not told that its client is gone")
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// signal closes begun at the first write.
type signal struct {
	begun chan struct{}
	once  bool
}

func (s *signal) Write(p []byte) (int, error) {
	if !s.once && len(p) > 0 {
		s.once = true
		close(s.begun)
	}
	return len(p), nil
}

func TestServersVanish(t *testing.T) {
	run := func(p *process) int {
		fmt.Fprint(p.stdout, "running")
		<-p.gone
		return 0
	}
	for _, address := range []string{apiAddress, kubeletAddress, runtimeAddress} {
		t.Run(address, func(t *testing.T) {
			both(t, run, func(t *testing.T, s *stack) {
				began := &signal{begun: make(chan struct{})}
				result := make(chan error, 1)
				go func() {
					result <- remotecommand.Stream(t.Context(), s.client, execPath, in("c", "sleep"), remotecommand.Streams{Out: began})
				}()
				<-began.begun
				s.cut(address)
				select {
				case err := <-result:
					if err == nil {
						t.Error("a broken connection passes for a command that succeeded")
					}
				case <-time.After(2 * time.Minute):
					t.Error("the client was not told")
				}
			})
		})
	}
}

func TestRefusals(t *testing.T) {
	both(t, func(*process) int { return 0 }, func(t *testing.T, s *stack) {
		for _, tc := range []struct {
			path, container, want string
		}{
			{execPath, "", "a container name must be specified for pod p, choose one of: [c tty new]"},
			{execPath, "x", "container x is not valid for pod p"},
			{execPath, "new", `container not found ("new")`},
			{"/api/v1/namespaces/ns/pods/q/exec", "c", `pods "q" not found`},
		} {
			err := remotecommand.Stream(t.Context(), s.client, tc.path, in(tc.container, "x"), remotecommand.Streams{Out: io.Discard})
			if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), `\"`, `"`), tc.want) {
				t.Errorf("container %q of %s: got %v, want %s", tc.container, tc.path, err, tc.want)
			}
		}
		time.Sleep(time.Minute) // the refused connections are closed
		s.cut(kubeletAddress)
		s.servers[1].Close()
		err := remotecommand.Stream(t.Context(), s.client, execPath, in("c", "x"), remotecommand.Streams{Out: io.Discard})
		if err == nil || !strings.Contains(err.Error(), "error dialing backend: dial 192.0.2.10:10250: connection refused") {
			t.Errorf("no kubelet: got %v", err)
		}
	})
}
