package proxy

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/proxy/services"
)

// name is a Service's namespace and name.
type name struct{ namespace, name string }

func (n name) String() string { return n.namespace + "/" + n.name }

// pending collects the changes since the last sync. The informers add changes and the
// sync takes them. It is safe for concurrent use.
type pending struct {
	mu       sync.Mutex
	services map[name]struct{}
	batch    batch
	wake     chan struct{}
}

// batch is the work of one sync.
type batch struct {
	services        []name
	everything      bool        // re-plan the rules of all Services
	slices          uint64      // the newest revision of an EndpointSlice
	terminating     bool        // kubelets may wait for the Lease
	queued          time.Time   // when the first change came; zero: there is none
	triggers        []time.Time // when the objects behind the changes changed
	serviceChanges  int
	endpointChanges int
}

func newPending() *pending {
	return &pending{services: map[name]struct{}{}, wake: make(chan struct{}, 1)}
}

// note records one change and wakes the sync. It calls change with p.mu held.
func (p *pending) note(change func(*batch)) {
	p.mu.Lock()
	change(&p.batch)
	if p.batch.queued.IsZero() {
		p.batch.queued = time.Now()
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pending) service(old, new *corev1.Service) {
	p.note(func(b *batch) {
		b.serviceChanges++
		for _, s := range []*corev1.Service{old, new} {
			if s != nil {
				p.services[name{s.Namespace, s.Name}] = struct{}{}
			}
		}
	})
}

func (p *pending) slice(old, new *discoveryv1.EndpointSlice) {
	p.note(func(b *batch) {
		b.endpointChanges++
		for _, s := range []*discoveryv1.EndpointSlice{old, new} {
			if s == nil {
				continue
			}
			p.services[serviceOf(s)] = struct{}{}
			b.slices = max(b.slices, revision(s))
		}
		b.terminating = b.terminating || awaited(old, new)
		if new == nil {
			return
		}
		if t, err := time.Parse(time.RFC3339Nano, new.Annotations[corev1.EndpointsLastChangeTriggerTime]); err == nil {
			b.triggers = append(b.triggers, t)
		}
	})
}

// awaited reports whether a kubelet may wait for this change of a slice: an endpoint is
// terminating, even if it was before, since the kubelet may have read the slice late
// and wait for exactly this revision; or an endpoint that was not terminating was
// removed.
func awaited(old, new *discoveryv1.EndpointSlice) bool {
	stays := map[types.UID]bool{}
	if new != nil {
		if len(services.Terminating(new)) > 0 {
			return true
		}
		for i := range new.Endpoints {
			if ref := new.Endpoints[i].TargetRef; ref != nil {
				stays[ref.UID] = true
			}
		}
	}
	if old == nil {
		return false
	}
	for i := range old.Endpoints {
		e := &old.Endpoints[i]
		terminating := e.Conditions.Terminating != nil && *e.Conditions.Terminating
		if e.TargetRef != nil && !terminating && !stays[e.TargetRef.UID] {
			return true
		}
	}
	return false
}

// all makes the next sync re-plan all Services.
func (p *pending) all() { p.note(func(b *batch) { b.everything = true }) }

// take returns the pending work and resets it, except for the revision.
func (p *pending) take() batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.batch
	b.services = slices.Collect(maps.Keys(p.services))
	p.services = map[name]struct{}{}
	p.batch = batch{slices: b.slices}
	return b
}

// giveBack adds the work of a failed sync again.
func (p *pending) giveBack(b batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range b.services {
		p.services[n] = struct{}{}
	}
	p.batch.terminating = p.batch.terminating || b.terminating
	p.batch.triggers = append(b.triggers, p.batch.triggers...)
	p.batch.serviceChanges += b.serviceChanges
	p.batch.endpointChanges += b.endpointChanges
	if !b.queued.IsZero() {
		p.batch.queued = b.queued
	}
}

// oldest returns when the oldest pending change came; zero: none is pending.
func (p *pending) oldest() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.batch.queued
}

// counts returns the numbers of pending changes.
func (p *pending) counts() (services, endpoints int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.batch.serviceChanges, p.batch.endpointChanges
}

func serviceOf(s *discoveryv1.EndpointSlice) name {
	return name{s.Namespace, s.Labels[discoveryv1.LabelServiceName]}
}
