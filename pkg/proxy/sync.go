package proxy

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/proxy/conntrack"
	"podium/pkg/proxy/iptables"
	"podium/pkg/proxy/rules"
	"podium/pkg/proxy/services"
)

// served is what a sync remembers of a Service.
type served struct {
	model    services.Service
	was      []services.Port // of before, whose flows were not yet looked at
	fresh    bool            // it had no rules before
	reported types.UID       // the Service whose limits were told
}

// A failed sync is tried again after this long, doubling up to the maximum.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// loop writes the first change of a burst at once and the rest together, and
// looks after the kernel between the changes.
func (p *Proxy) loop(ctx context.Context) error {
	if err := p.waitSynced(ctx); err != nil {
		return nil // ctx has ended
	}
	p.pending.all()
	watch := time.NewTicker(p.times.Watch)
	defer watch.Stop()
	guard := guard{times: p.times}
	retry := firstRetry
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-watch.C:
			p.guard(ctx, &guard)
			continue
		case <-p.pending.wake:
		}
		began := time.Now()
		wait := p.times.MinSync
		if err := p.sync(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			p.cfg.Log.Error("the rules were not written; trying again", "error", err, "in", retry)
			wait, retry = retry, min(2*retry, lastRetry)
			p.pending.note(func(*batch) {})
		} else {
			retry = firstRetry
		}
		if !pause(ctx, wait-time.Since(began)) {
			return nil
		}
	}
}

// pause waits and says whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// sync brings everything pending into the kernel: model, plan, one
// iptables-restore, then what depends on the rules being there.
func (p *Proxy) sync(ctx context.Context) error {
	began := time.Now()
	todo := p.pending.take()
	full := time.Since(p.lastFull) >= p.times.FullSync
	if todo.everything {
		todo.services = p.replanAll()
	}
	p.podMu.Lock()
	p.set.Put(podNetwork, p.podRules)
	if p.reannounced {
		p.set.Put(announced, p.planner.Announced(p.announced))
		p.reannounced = false
	}
	p.podMu.Unlock()
	node := p.self()
	for _, n := range todo.services {
		p.plan(n, node)
	}
	full = full || !p.applier.Partial()
	batch, err := p.applier.Sync(ctx, p.set, full)
	if err != nil {
		p.metrics.restoreFailed(full)
		p.pending.giveBack(todo)
		return err
	}
	if full {
		p.lastFull = began
	}
	p.applied(ctx, todo, batch, began, full)
	return nil
}

// podNetwork is the contributor of the pod network's rules.
const podNetwork = iptables.Last + "pods"

// replanAll takes up the node's present place and returns every Service, those
// that are gone included.
func (p *Proxy) replanAll() []name {
	node, _ := p.currentNode()
	o := p.cfg.Rules
	p.planner = iptables.Planner{
		Family:        o.Family(),
		MasqueradeAll: o.MasqueradeAll, NodePortAddresses: o.NodePortAddresses,
		LocalhostNodePorts: o.LocalhostNodePorts, Kernel: p.features,
		PodLinks: o.PodLinks, Metadata: o.ClosedMetadata,
	}
	p.planner.PodTraffic, p.planner.NotPodTraffic = o.podTraffic(placeOf(node, o.Family()).podCIDR)
	first, last := p.planner.Base()
	p.set.Put(iptables.First, first)
	p.set.Put(iptables.Last, last)
	if p.applier == nil {
		p.applier = iptables.NewApplier(p.cfg.Kernel, append(p.planner.Hooks(), p.cfg.PodHooks...))
	}
	all := map[name]struct{}{}
	for n := range p.served {
		all[n] = struct{}{}
	}
	for _, s := range p.services.List() {
		all[name{s.Namespace, s.Name}] = struct{}{}
	}
	return slices.Collect(maps.Keys(all))
}

func (p *Proxy) self() services.Node {
	node, _ := p.currentNode()
	return services.Node{
		Name: p.cfg.Node, Zone: placeOf(node, p.cfg.Rules.Family()).zone, Family: p.cfg.Rules.Family(), Captured: p.captured,
	}
}

// plan makes the rules of one Service anew, from what the informers hold now.
func (p *Proxy) plan(n name, node services.Node) {
	svc, _ := p.services.Get(n.namespace, n.name)
	model := services.Build(svc, p.slices.By(byService, n.String()), node)
	f := p.planner.Service(model.Ports)
	if model.HealthCheckPort != 0 {
		p.planner.HealthPort(&f, n.String(), model.HealthCheckPort)
	}
	p.set.Put(n.String(), f)
	s := p.served[n]
	s.was = append(s.was, s.model.Ports...)
	s.fresh = s.fresh || !answers(s.was)
	s.model = model
	if svc != nil && s.reported != svc.UID {
		s.reported = svc.UID
		p.report(svc, model)
	}
	p.served[n] = s
}

// report tells about a Service what this node cannot do for it.
func (p *Proxy) report(svc *corev1.Service, model services.Service) {
	warn := func(reason, text string) {
		p.cfg.Log.Warn("a Service is not fully served", "service", svc.Namespace+"/"+svc.Name, "why", text)
		p.cfg.Events.Event(svc, corev1.EventTypeWarning, reason, text+" (node "+p.cfg.Node+")")
	}
	for _, note := range model.Notes {
		warn("NotProxied", note)
	}
	for _, port := range model.Ports {
		if port.Affinity > 0 && !p.features.Recent {
			warn("SessionAffinityLimited", "the kernel has no recent match: clients are kept apart by address and the affinity's timeout is not kept")
			break
		}
	}
	if slices.ContainsFunc(model.Ports, func(p services.Port) bool { return p.Protocol == "sctp" }) && !p.features.SCTP {
		warn("ProtocolNotSupported", "the kernel's iptables has no sctp match: its SCTP ports are not served")
	}
}

// applied does what must wait for the rules: dead flows, health checks,
// metrics, and the word to those who wait for us.
func (p *Proxy) applied(ctx context.Context, todo batch, written rules.Batch, began time.Time, full bool) {
	p.endStaleFlows(todo.services)
	if p.cfg.Health != nil {
		p.cfg.Health.Set(p.healthPorts())
	}
	for _, n := range todo.services {
		if _, exists := p.services.Get(n.namespace, n.name); !exists {
			delete(p.served, n)
		}
	}
	p.lease.applied(todo.slices, todo.terminating)
	p.health.updated(time.Now())
	p.metrics.synced(began, todo, written, full, p.set)
	p.cfg.Log.Debug("rules written", "services", len(todo.services), "chains", len(written.Write),
		"removed", len(written.Delete), "full", full, "took", time.Since(began))
}

// healthPorts says for each health check node port how many endpoints stand behind it here.
func (p *Proxy) healthPorts() map[int32]HealthAnswer {
	out := map[int32]HealthAnswer{}
	for n, s := range p.served {
		if s.model.HealthCheckPort != 0 {
			out[s.model.HealthCheckPort] = HealthAnswer{Namespace: n.namespace, Service: n.name, LocalEndpoints: s.model.LocalReady}
		}
	}
	return out
}

// answers says whether any of the ports had an endpoint.
func answers(ports []services.Port) bool {
	return slices.ContainsFunc(ports, func(p services.Port) bool { return p.Any })
}

// endStaleFlows removes tracked flows that lead to what the changed Services
// do not have: UDP to endpoints that are gone, and all that went nowhere while
// a Service had no rules. Other TCP needs no look, so an ordinary change of
// endpoints does not cost one.
func (p *Proxy) endStaleFlows(changed []name) {
	var fronts conntrack.Frontends
	for _, n := range changed {
		s := p.served[n]
		for i := range s.model.Ports {
			if port := &s.model.Ports[i]; port.Protocol == "udp" || s.fresh {
				addFrontends(&fronts, port)
			}
		}
		for _, gone := range s.was {
			if gone.Protocol == "udp" {
				gone.Cluster, gone.Local = nil, nil // where it is still served, the present endpoints are added above
				addFrontends(&fronts, &gone)
			}
		}
		s.was, s.fresh = nil, false
		p.served[n] = s
	}
	p.endFlows(&fronts)
}

// endLostFlows removes the tracked flows that began while somebody had taken
// our rules away.
func (p *Proxy) endLostFlows() {
	var fronts conntrack.Frontends
	for _, s := range p.served {
		for i := range s.model.Ports {
			addFrontends(&fronts, &s.model.Ports[i])
		}
	}
	p.endFlows(&fronts)
}

func (p *Proxy) endFlows(fronts *conntrack.Frontends) {
	if p.cfg.Conntrack == nil || fronts.Empty() {
		return
	}
	n, err := p.cfg.Conntrack.Delete(fronts.Stale)
	if err != nil {
		p.cfg.Log.Warn("stale flows were not ended: clients may wait for an answer that cannot come", "error", err)
	}
	p.metrics.conntrackDeleted.Add(float64(n))
}

func addFrontends(fronts *conntrack.Frontends, port *services.Port) {
	var behind []netip.AddrPort
	for _, list := range [][]services.Endpoint{port.Cluster, port.Local} {
		for _, e := range list {
			behind = append(behind, e.Addr)
		}
	}
	for _, ip := range slices.Concat([]netip.Addr{port.ClusterIP}, port.ExternalIPs, port.Balancers) {
		fronts.Add(port.Protocol, netip.AddrPortFrom(ip, uint16(port.Port)), behind)
	}
	if port.NodePort != 0 {
		fronts.NodePort(port.Protocol, uint16(port.NodePort), behind)
	}
}
