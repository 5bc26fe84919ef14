package shutdown

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/godbus/dbus/v5"
)

// Names of systemd-logind and systemd on D-Bus.
const (
	logindName    = "org.freedesktop.login1"
	logindPath    = dbus.ObjectPath("/org/freedesktop/login1")
	logindManager = "org.freedesktop.login1.Manager"
	signalName    = "PrepareForShutdown"
	systemdName   = "org.freedesktop.systemd1"
	systemdPath   = dbus.ObjectPath("/org/freedesktop/systemd1")
	killUnit      = "org.freedesktop.systemd1.Manager.KillUnit"
	logindUnit    = "systemd-logind.service"
)

// dropIn raises logind's limit of delays. The kubelet of upstream writes the same file.
const dropIn = "/etc/systemd/logind.conf.d/99-kubelet.conf"

// Logind is systemd-logind on the system's D-Bus.
type Logind struct {
	conn    *dbus.Conn
	file    string // the drop-in of its configuration
	signals chan *dbus.Signal
}

// ConnectLogind connects to the system's D-Bus. The caller closes the connection.
func ConnectLogind() (Bus, error) {
	conn, err := dbus.ConnectSystemBus()
	if err != nil {
		return nil, fmt.Errorf("connect to D-Bus: %w", err)
	}
	return newLogind(conn, dropIn)
}

func newLogind(conn *dbus.Conn, file string) (*Logind, error) {
	l := &Logind{conn: conn, file: file, signals: make(chan *dbus.Signal, 8)}
	err := conn.AddMatchSignal(dbus.WithMatchInterface(logindManager), dbus.WithMatchMember(signalName), dbus.WithMatchObjectPath(logindPath))
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("subscribe to %s: %w", signalName, err)
	}
	conn.Signal(l.signals)
	return l, nil
}

// Close closes the connection.
func (l *Logind) Close() error { return l.conn.Close() }

// MaxDelay returns how long inhibitor locks may delay a shutdown.
func (l *Logind) MaxDelay() (time.Duration, error) {
	v, err := l.conn.Object(logindName, logindPath).GetProperty(logindManager + ".InhibitDelayMaxUSec")
	if err != nil {
		return 0, fmt.Errorf("get InhibitDelayMaxUSec: %w", err)
	}
	us, ok := v.Value().(uint64)
	if !ok {
		return 0, fmt.Errorf("InhibitDelayMaxUSec is %v", v)
	}
	return time.Duration(us) * time.Microsecond, nil
}

// RaiseMaxDelay configures the limit of delays and makes logind read its configuration.
// It returns before logind has done so.
func (l *Logind) RaiseMaxDelay(d time.Duration) error {
	if err := os.MkdirAll(filepath.Dir(l.file), 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("# Written by the kubelet, for graceful node shutdown.\n[Login]\nInhibitDelayMaxSec=%d\n", (d+time.Second-1)/time.Second)
	if err := os.WriteFile(l.file, []byte(text), 0o644); err != nil {
		return err
	}
	const hangup = int32(1)
	if err := l.conn.Object(systemdName, systemdPath).Call(killUnit, 0, logindUnit, "all", hangup).Err; err != nil {
		return fmt.Errorf("reload %s: %w", logindUnit, err)
	}
	return nil
}

// Inhibit delays shutdowns until the returned lock is released.
func (l *Logind) Inhibit() (Lock, error) {
	var fd dbus.UnixFD
	call := l.conn.Object(logindName, logindPath).Call(logindManager+".Inhibit", 0, "shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay")
	if err := call.Store(&fd); err != nil {
		return nil, fmt.Errorf("take inhibitor lock: %w", err)
	}
	return os.NewFile(uintptr(fd), "inhibitor lock"), nil
}

// Next blocks until a shutdown begins (true) or is cancelled (false).
func (l *Logind) Next(ctx context.Context) (bool, error) {
	for {
		select {
		case s, ok := <-l.signals:
			if !ok {
				return false, fmt.Errorf("the connection to D-Bus was closed")
			}
			if begins, ok := begins(s); ok {
				return begins, nil
			}
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// begins returns what a signal says; ok is false for other signals.
func begins(s *dbus.Signal) (yes, ok bool) {
	if s.Name != logindManager+"."+signalName || len(s.Body) != 1 {
		return false, false
	}
	yes, ok = s.Body[0].(bool)
	return yes, ok
}
