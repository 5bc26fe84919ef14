package daemon

import (
	"context"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
)

// NotifyReady tells systemd that the service is ready. Without systemd it does nothing.
func NotifyReady() { notify(systemd.SdNotifyReady) }

// NotifyStopping tells systemd that the service is stopping. Without systemd it does
// nothing.
func NotifyStopping() { notify(systemd.SdNotifyStopping) }

// notify ignores the error: the unit's timeouts handle a lost message.
func notify(state string) { _, _ = systemd.SdNotify(false, state) }

// Watchdog pings systemd's watchdog at half its interval as long as healthy returns nil.
// It blocks until ctx ends, also if the unit has no watchdog.
func Watchdog(ctx context.Context, healthy func() error) error {
	interval, err := systemd.SdWatchdogEnabled(false)
	if err != nil || interval == 0 {
		<-ctx.Done()
		return nil
	}
	t := time.NewTicker(interval / 2)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			if healthy() == nil {
				notify(systemd.SdNotifyWatchdog)
			}
		}
	}
}
