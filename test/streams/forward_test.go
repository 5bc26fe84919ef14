package streams_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"podium/pkg/client/remotecommand"
)

// echoAfter reads everything, then sends it back: it needs the client's half-close.
func echoAfter(port int, data io.ReadWriteCloser) error {
	if port != 80 {
		return fmt.Errorf("port %d: connection refused", port)
	}
	all, err := io.ReadAll(data)
	if err != nil {
		return err
	}
	_, err = data.Write(all)
	return err
}

// logged collects Forward's log.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
	line chan string
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	if strings.Contains(string(p), "level=ERROR") {
		select {
		case l.line <- string(p):
		default:
		}
	}
	return len(p), nil
}

func startForward(t *testing.T, noSocket bool) (s *stack, open []remotecommand.Port, log *logged, stop func() error) {
	s = newStack(t, &loopback{}, nil)
	s.noSocket = noSocket
	s.runtime.forward = echoAfter
	t.Cleanup(s.close)
	ctx, cancel := context.WithCancel(t.Context())
	ready := make(chan []remotecommand.Port, 1)
	done := make(chan error, 1)
	log = &logged{line: make(chan string, 1)}
	go func() {
		done <- remotecommand.Forward(ctx, s.client, "ns", "p", []remotecommand.Port{{Address: "127.0.0.1", Remote: 80}, {Address: "127.0.0.1", Remote: 81}},
			ready, slog.New(slog.NewTextHandler(log, nil)))
	}()
	select {
	case open = <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	return s, open, log, func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(10 * time.Second):
			return errors.New("it does not end")
		}
	}
}

func TestForward(t *testing.T) {
	for _, noSocket := range []bool{false, true} {
		t.Run(fmt.Sprintf("noSocket=%v", noSocket), func(t *testing.T) {
			_, open, log, stop := startForward(t, noSocket)
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					data := make([]byte, i*100_000+1)
					rand.Read(data)
					if err := exchange(open[0].Local, data); err != nil {
						t.Errorf("connection %d: %v", i, err)
					}
				})
			}
			wg.Wait()
			conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", open[1].Local))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.ReadAll(conn); err != nil {
				t.Error(err)
			}
			if line := <-log.line; !strings.Contains(line, "port 81: connection refused") {
				t.Errorf("the far side's words are lost: %s", line)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

func exchange(port uint16, data []byte) error {
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(data); err != nil {
		return err
	}
	conn.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(conn)
	if err == nil && !bytes.Equal(got, data) {
		err = fmt.Errorf("sent %d bytes, got %d others", len(data), len(got))
	}
	return err
}

func TestForwardLosesItsPod(t *testing.T) {
	s, _, _, stop := startForward(t, false)
	s.cut(runtimeAddress)
	if err := stop(); err != nil && !errors.Is(err, remotecommand.ErrLostPod) {
		t.Error(err)
	}
}

func TestForwardToAPortInUse(t *testing.T) {
	s := newStack(t, &loopback{}, nil)
	defer s.close()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := uint16(taken.Addr().(*net.TCPAddr).Port)
	err = remotecommand.Forward(t.Context(), s.client, "ns", "p", []remotecommand.Port{{Local: port, Remote: 80}}, nil, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "unable to listen on port") {
		t.Errorf("got %v", err)
	}
}

// Large data over real sockets, where writes and closes race in the kernel.
func TestExecOverLoopback(t *testing.T) {
	s := newStack(t, &loopback{}, func(p *process) int {
		n, err := io.Copy(p.stdout, p.stdin)
		if err != nil || n == 0 {
			return 1
		}
		return 9
	})
	defer s.close()
	data := make([]byte, 16<<20)
	rand.Read(data)
	for _, noSocket := range []bool{false, true} {
		s.noSocket = noSocket
		var out bytes.Buffer
		var exit *remotecommand.ExitError
		err := remotecommand.Stream(t.Context(), s.client, execPath, in("c", "cat"), remotecommand.Streams{In: bytes.NewReader(data), Out: &out})
		if !errors.As(err, &exit) || exit.Code != 9 || !bytes.Equal(out.Bytes(), data) {
			t.Errorf("noSocket=%v: got %d of %d bytes, %v", noSocket, out.Len(), len(data), err)
		}
	}
}
