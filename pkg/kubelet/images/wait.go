package images

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// wait is the time in which a pod waits for at least one image. The Puller's lock protects it.
type wait struct {
	images int       // for which it waits
	since  time.Time // if images is not 0
	before time.Duration
}

// Waited returns how long the pod has waited for images: from the start of a pull to its
// success, with back-offs. Time in which it waits for several images counts once.
func (p *Puller) Waited(uid types.UID) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.waits[uid]
	switch {
	case w == nil:
		return 0
	case w.images > 0:
		return w.before + time.Since(w.since)
	}
	return w.before
}

// waitLocked makes the pod wait for an image. p.mu is held.
func (p *Puller) waitLocked(uid types.UID, s *state) {
	if s.awaited != nil {
		return
	}
	w := p.waits[uid]
	if w == nil {
		w = &wait{}
		p.waits[uid] = w
	}
	s.awaited = w
	if w.images++; w.images == 1 {
		w.since = time.Now()
	}
}

// arrived ends the wait for an image. The Puller's lock is held.
func (s *state) arrived() {
	w := s.awaited
	s.awaited = nil
	if w.images--; w.images == 0 {
		w.before += time.Since(w.since)
	}
}
