package resources

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// line is a connection to a systemd in memory.
type line struct {
	*bus
	closed bool // calls fail
	noted  bool // Connected knows that
}

func (l *line) Connected() bool { return !l.noted }
func (l *line) Close()          { l.closed, l.noted = true, true }

func (l *line) StartTransientUnitContext(ctx context.Context, name, mode string, properties []systemd.Property, done chan<- string) (int, error) {
	if l.closed {
		return 0, dbus.ErrClosed
	}
	return l.bus.StartTransientUnitContext(ctx, name, mode, properties, done)
}

func (l *line) StopUnitContext(ctx context.Context, name, mode string, done chan<- string) (int, error) {
	if l.closed {
		return 0, dbus.ErrClosed
	}
	return l.bus.StopUnitContext(ctx, name, mode, done)
}

// D-Bus is restarted: calls are made on a new connection, which may fail for a while.
func TestClosedBusConnectsAgain(t *testing.T) {
	for name, noted := range map[string]bool{"before a call": true, "during a call": false} {
		memory := &bus{units: map[string]map[string]any{}}
		var lines []*line
		var down error
		b := &Bus{dial: func(context.Context) (connection, error) {
			if down != nil {
				return nil, down
			}
			lines = append(lines, &line{bus: memory})
			return lines[len(lines)-1], nil
		}}
		f := NewFS(Options{Mount: t.TempDir(), Systemd: b, Log: slog.New(slog.DiscardHandler)})
		p := pod(container(nil, nil))
		for range 2 {
			if _, err := f.Ensure(t.Context(), p); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		lines[0].closed, lines[0].noted = true, noted
		down = errors.New("connection refused")
		if err := f.Remove(t.Context(), p.UID); !errors.Is(err, down) {
			t.Errorf("%s: while D-Bus is down: %v", name, err)
		}
		down = nil
		if err := f.Remove(t.Context(), p.UID); err != nil {
			t.Errorf("%s: after that: %v", name, err)
		}
		if len(lines) != 2 || len(memory.units) != 0 {
			t.Errorf("%s: %d connections, units %v", name, len(lines), memory.units)
		}
		if _, err := f.Ensure(t.Context(), p); err != nil || !slices.Contains(memory.calls, "start kubepods-besteffort-podu_1.slice") {
			t.Errorf("%s: %v, calls %q", name, err, memory.calls)
		}
	}
}

// forgetful is a systemd whose signals that jobs have ended are lost.
type forgetful struct{ *bus }

func (forgetful) StartTransientUnitContext(context.Context, string, string, []systemd.Property, chan<- string) (int, error) {
	return 1, nil
}

func (forgetful) StopUnitContext(context.Context, string, string, chan<- string) (int, error) {
	return 1, nil
}

func TestLostSignalsOfSystemdAreNotAwaitedForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFS(Options{Mount: t.TempDir(), Systemd: forgetful{&bus{}}, Log: slog.New(slog.DiscardHandler)})
		p := pod(container(nil, nil))
		for name, call := range map[string]func() error{
			"Ensure": func() error { _, err := f.Ensure(t.Context(), p); return err },
			"Weigh":  func() error { return f.Weigh(t.Context(), nil) },
			"Remove": func() error { return f.Remove(t.Context(), p.UID) },
		} {
			began := time.Now()
			if err := call(); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 3*busTimeout {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
		}
	})
}
