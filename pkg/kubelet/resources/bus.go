package resources

import (
	"context"
	"errors"
	"fmt"
	"sync"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// Bus is systemd on D-Bus. A restart of D-Bus, or of systemd, closes the connection; the next
// call then makes a new one. A Bus is safe for concurrent use.
type Bus struct {
	dial func(context.Context) (connection, error)

	mu   sync.Mutex
	conn connection // nil: none
}

var _ Units = (*Bus)(nil)

// connection is a connection to systemd. *dbus.Conn of go-systemd implements it.
type connection interface {
	Units
	Connected() bool
	Close()
}

// ConnectSystemd connects to systemd on D-Bus. All connections are closed when ctx ends.
func ConnectSystemd(ctx context.Context) (*Bus, error) {
	b := &Bus{dial: func(call context.Context) (connection, error) {
		life, cancel := context.WithCancel(ctx) // that of the connection, which outlives the call
		defer context.AfterFunc(call, cancel)()
		conn, err := systemd.NewWithContext(life)
		if err != nil {
			cancel()
			return nil, fmt.Errorf("connect to systemd on D-Bus: %w", err)
		}
		return conn, nil
	}}
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	if _, err := b.connect(ctx, nil); err != nil {
		return nil, fmt.Errorf("the systemd cgroup driver needs systemd on D-Bus (else: --cgroup-driver=cgroupfs, here and in the runtime): %w", err)
	}
	return b, nil
}

// connect returns a connection other than broken.
func (b *Bus) connect(ctx context.Context, broken connection) (connection, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil && b.conn != broken && b.conn.Connected() {
		return b.conn, nil
	}
	if b.conn != nil {
		b.conn.Close() // systemd and its signals have connections of their own: one may be left
		b.conn = nil
	}
	conn, err := b.dial(ctx)
	if err != nil {
		return nil, err
	}
	b.conn = conn
	return conn, nil
}

// do makes a call. It repeats a call that could not be sent, once, on a new connection.
func (b *Bus) do(ctx context.Context, call func(Units) error) error {
	conn, err := b.connect(ctx, nil)
	if err != nil {
		return err
	}
	if err = call(conn); !errors.Is(err, dbus.ErrClosed) {
		return err
	}
	if conn, err = b.connect(ctx, conn); err != nil {
		return err
	}
	return call(conn)
}

// StartTransientUnitContext implements Units.
func (b *Bus) StartTransientUnitContext(ctx context.Context, name, mode string, properties []systemd.Property, done chan<- string) (job int, err error) {
	err = b.do(ctx, func(u Units) error {
		job, err = u.StartTransientUnitContext(ctx, name, mode, properties, done)
		return err
	})
	return job, err
}

// SetUnitPropertiesContext implements Units.
func (b *Bus) SetUnitPropertiesContext(ctx context.Context, name string, runtime bool, properties ...systemd.Property) error {
	return b.do(ctx, func(u Units) error { return u.SetUnitPropertiesContext(ctx, name, runtime, properties...) })
}

// StopUnitContext implements Units.
func (b *Bus) StopUnitContext(ctx context.Context, name, mode string, done chan<- string) (job int, err error) {
	err = b.do(ctx, func(u Units) error {
		job, err = u.StopUnitContext(ctx, name, mode, done)
		return err
	})
	return job, err
}

// ResetFailedUnitContext implements Units.
func (b *Bus) ResetFailedUnitContext(ctx context.Context, name string) error {
	return b.do(ctx, func(u Units) error { return u.ResetFailedUnitContext(ctx, name) })
}
