package resources

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// busTimeout is how long systemd may take for a slice: the signal that a job has ended can be
// lost.
const busTimeout = 30 * time.Second

// Units are the D-Bus methods of systemd that FS calls. Bus implements it.
type Units interface {
	StartTransientUnitContext(ctx context.Context, name, mode string, properties []systemd.Property, done chan<- string) (int, error)
	SetUnitPropertiesContext(ctx context.Context, name string, runtime bool, properties ...systemd.Property) error
	StopUnitContext(ctx context.Context, name, mode string, done chan<- string) (int, error)
	ResetFailedUnitContext(ctx context.Context, name string) error
}

// D-Bus errors of systemd which mean that the work is already done.
const (
	unitExists  = "org.freedesktop.systemd1.UnitExists"
	noSuchUnit  = "org.freedesktop.systemd1.NoSuchUnit"
	modeReplace = "replace"
)

// setSlice creates a slice or updates the properties of an existing one.
func (f *FS) setSlice(ctx context.Context, p place, g Group) error {
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	full := p.below(f.Root)
	name := full.slice()
	properties := sliceProperties(g, f.unified)
	whole := append([]systemd.Property{
		systemd.PropDescription("Podium pods: " + strings.Join(full, "/")),
		property("DefaultDependencies", false),
	}, properties...)
	if len(full) > 1 {
		whole = append(whole, systemd.PropWants(full[:len(full)-1].slice()))
	}
	done := make(chan string, 1)
	_, err := f.Systemd.StartTransientUnitContext(ctx, name, modeReplace, whole, done)
	if isBusError(err, unitExists) {
		if err := f.Systemd.SetUnitPropertiesContext(ctx, name, true, properties...); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	return await(ctx, name, done)
}

func (f *FS) stopSlice(ctx context.Context, p place) error {
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	name := p.below(f.Root).slice()
	done := make(chan string, 1)
	_, err := f.Systemd.StopUnitContext(ctx, name, modeReplace, done)
	if isBusError(err, noSuchUnit) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stop %s: %w", name, err)
	}
	err = await(ctx, name, done)
	_ = f.Systemd.ResetFailedUnitContext(ctx, name) // fails if the unit did not fail
	return err
}

func await(ctx context.Context, name string, done <-chan string) error {
	select {
	case result := <-done:
		if result != "done" && result != "skipped" {
			return fmt.Errorf("%s: systemd job result: %s", name, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: wait for its systemd job: %w", name, ctx.Err())
	}
}

func isBusError(err error, name string) bool {
	var e dbus.Error
	return errors.As(err, &e) && e.Name == name
}

// sliceProperties returns the settings as systemd properties.
func sliceProperties(g Group, v2 bool) []systemd.Property {
	out := []systemd.Property{
		property("CPUAccounting", true), property("MemoryAccounting", true), property("TasksAccounting", true),
	}
	if g.Shares > 0 {
		if v2 {
			out = append(out, property("CPUWeight", uint64(Weight(g.Shares))))
		} else {
			out = append(out, property("CPUShares", uint64(g.Shares)))
		}
	}
	quota := uint64(math.MaxUint64) // no limit
	if g.Quota > 0 {
		const perSecond = 1000000 / QuotaPeriod
		quota = uint64(g.Quota) * perSecond
	}
	out = append(out, property("CPUQuotaPerSecUSec", quota))
	if g.Memory > 0 {
		name := "MemoryLimit"
		if v2 {
			name = "MemoryMax"
		}
		out = append(out, property(name, uint64(g.Memory)))
	}
	if g.PIDs > 0 {
		out = append(out, property("TasksMax", uint64(g.PIDs)))
	}
	return out
}

func property(name string, value any) systemd.Property {
	return systemd.Property{Name: name, Value: dbus.MakeVariant(value)}
}
