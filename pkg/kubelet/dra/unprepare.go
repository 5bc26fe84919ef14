package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

// Unprepare releases the claims of a pod whose containers have ended. The last pod that
// uses a claim unprepares it. After an error the pod still holds what could not be
// released; Unprepare is to be called again. It returns nil if the pod holds no claims.
func (m *Manager) Unprepare(ctx context.Context, pod types.UID) (err error) {
	uids := m.heldBy(pod)
	if len(uids) == 0 {
		return nil
	}
	defer m.Metrics.observe("UnprepareResources", time.Now(), &err)
	unlock, err := m.locks.lock(ctx, uids)
	if err != nil {
		return err
	}
	defer unlock()
	todo, missing := m.leave(pod, uids)
	err = m.each(todo, func(p *plugin, claims []*drapb.Claim) error { return m.unprepareWith(ctx, p, claims) })
	return errors.Join(missing, err, m.forget(pod, uids))
}

func (m *Manager) heldBy(pod types.UID) map[types.UID]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[types.UID]bool{}
	for uid, c := range m.claims {
		if c.usedBy(pod) {
			out[uid] = true
		}
	}
	return out
}

// leave removes the pod from the claims that other pods use, too. It returns what is to
// be unprepared of the others, and an error if a driver is not there.
func (m *Manager) leave(pod types.UID, uids map[types.UID]bool) (work, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	todo := work{}
	var missing []error
	for _, uid := range slices.Sorted(maps.Keys(uids)) {
		c := m.claims[uid]
		if c == nil || !c.usedBy(pod) {
			continue // released by an earlier call, whose lock this one waited for
		}
		if len(c.Pods) > 1 {
			c.Pods = slices.DeleteFunc(c.Pods, func(p types.UID) bool { return p == pod })
			m.changed = true
			continue
		}
		for _, driver := range slices.Sorted(maps.Keys(c.Drivers)) {
			if !c.Drivers[driver].Called {
				continue
			}
			p, err := m.pick(driver)
			if err != nil {
				missing = append(missing, err)
				continue
			}
			c.Drivers[driver].fresh = false // the driver may do it although the call fails
			todo.add(p, c)
		}
	}
	return todo, errors.Join(missing...)
}

// unprepareWith asks a driver to unprepare claims, and records which ones it has.
func (m *Manager) unprepareWith(ctx context.Context, p *plugin, claims []*drapb.Claim) error {
	res, err := p.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: claims})
	if err != nil {
		return fmt.Errorf("NodeUnprepareResources: %w", err)
	}
	done, err := unprepared(claims, res)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uid := range done {
		*m.claims[uid].Drivers[p.Name] = part{}
		m.changed = true
	}
	return err
}

// forget removes the claims of the pod that no driver has prepared any more.
func (m *Manager) forget(pod types.UID, uids map[types.UID]bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid := range uids {
		c := m.claims[uid]
		if c == nil || !c.usedBy(pod) || slices.ContainsFunc(slices.Collect(maps.Values(c.Drivers)), func(p *part) bool { return p.Called }) {
			continue
		}
		delete(m.claims, uid)
		m.changed = true
	}
	return m.saveLocked()
}
