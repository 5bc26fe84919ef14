package dra

import (
	"context"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/backoff"
)

const deleteTimeout = 30 * time.Second // of one deletion of ResourceSlices

// absence is the time for which a driver has no connected plugin.
type absence struct {
	due   time.Time // when its ResourceSlices are to be deleted
	retry backoff.Backoff
}

func newAbsence(due time.Time) *absence {
	return &absence{due: due, retry: backoff.Backoff{Initial: time.Second, Max: time.Minute}}
}

// others stands for all drivers that are not connected when the kubelet has been running
// for the grace period: they were there before it started.
const others = ""

// Run watches the drivers and deletes the node's ResourceSlices of those that stay away,
// until ctx ends. It then closes the connections to the drivers. It calls changed with pods the
// health of whose devices has changed. Call it once.
func (m *Manager) Run(ctx context.Context, changed func(pods []types.UID)) error {
	m.changedHealth = changed
	var running sync.WaitGroup
	defer running.Wait()
	defer m.closeAll()
	m.reg.Lock()
	m.away[others] = newAbsence(time.Now().Add(m.Grace))
	m.reg.Unlock()
	for ctx.Err() == nil {
		m.watchNew(ctx, &running)
		next := earliest(m.deleteDue(ctx), m.expireHealth())
		wait := time.Hour
		if !next.IsZero() {
			wait = max(time.Until(next), 0)
		}
		_ = backoff.SleepOrWake(ctx, wait, m.wake) // the loop ends with ctx
	}
	return nil
}

// earliest returns the earlier of two times, of which zero is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// checkLocked begins or ends the absence of a driver. m.reg is held.
func (m *Manager) checkLocked(driver string) {
	switch {
	case m.hereLocked(driver):
		delete(m.away, driver)
	case m.away[driver] == nil:
		m.away[driver] = newAbsence(time.Now().Add(m.Grace))
	}
}

// hereLocked reports whether a plugin of the driver is connected. m.reg is held.
func (m *Manager) hereLocked(driver string) bool {
	for _, p := range m.registry.plugins[driver] {
		if p.connected {
			return true
		}
	}
	return false
}

// deleteDue deletes the ResourceSlices of the drivers whose grace period has passed. It
// returns when to call it again; zero: when a driver comes or goes.
func (m *Manager) deleteDue(ctx context.Context) time.Time {
	for driver, a := range m.dueNow() {
		err := m.deleteSlices(ctx, driver)
		if err != nil && ctx.Err() == nil {
			m.Log.Warn("delete ResourceSlices failed", "driver", driver, "error", err)
		}
		m.reg.Lock()
		switch {
		case m.away[driver] != a: // it came back, and may have gone again
		case err != nil:
			a.due = time.Now().Add(a.retry.Next())
		default:
			delete(m.away, driver)
		}
		m.reg.Unlock()
	}
	return m.nextDue()
}

func (m *Manager) dueNow() map[string]*absence {
	m.reg.Lock()
	defer m.reg.Unlock()
	now, due := time.Now(), map[string]*absence{}
	for driver, a := range m.away {
		if !now.Before(a.due) {
			due[driver] = a
		}
	}
	return due
}

func (m *Manager) nextDue() time.Time {
	m.reg.Lock()
	defer m.reg.Unlock()
	var next time.Time
	for _, a := range m.away {
		if next.IsZero() || a.due.Before(next) {
			next = a.due
		}
	}
	return next
}

// deleteSlices deletes the node's ResourceSlices of a driver, or of all drivers that are
// not connected. A driver that has just come back publishes its slices again.
func (m *Manager) deleteSlices(ctx context.Context, driver string) error {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	if driver == others {
		m.Log.Info("deleting ResourceSlices of DRA drivers that have not registered")
	} else {
		m.Log.Info("deleting ResourceSlices of a DRA driver that is away", "driver", driver)
	}
	return m.API.DeleteResourceSlices(ctx, m.selector(driver))
}

func (m *Manager) selector(driver string) fields.Selector {
	own := fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorNodeName, m.NodeName)
	if driver != others {
		return fields.AndSelectors(own, fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorDriver, driver))
	}
	m.reg.Lock()
	defer m.reg.Unlock()
	terms := []fields.Selector{own}
	for name := range m.registry.plugins {
		if m.hereLocked(name) {
			terms = append(terms, fields.OneTermNotEqualSelector(resourcev1.ResourceSliceSelectorDriver, name))
		}
	}
	return fields.AndSelectors(terms...)
}
