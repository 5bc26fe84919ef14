package daemon

import (
	"context"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
)

// NotifyReady tells systemd, if it started us, that we serve.
func NotifyReady() { notify(systemd.SdNotifyReady) }

// NotifyStopping tells systemd, if it started us, that we are about to end.
func NotifyStopping() { notify(systemd.SdNotifyStopping) }

// notify ignores the error: there is nobody else to tell, and the unit's own
// timeouts say the rest.
func notify(state string) { _, _ = systemd.SdNotify(false, state) }

// Watchdog tells systemd at half the interval it asks for that we live, as
// long as healthy says so, until ctx ends. Without a watchdog it only waits.
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
