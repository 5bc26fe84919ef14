package proxy

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/backoff"
	"podium/pkg/netrules"
	"podium/pkg/proxy/conntrack"
	"podium/pkg/proxy/iptables"
	"podium/pkg/proxy/services"
)

// served is the state of a Service between syncs.
type served struct {
	model    services.Service
	was      []services.Port // earlier ports whose flows have not been checked yet
	fresh    bool            // it had no rules before
	reported types.UID       // the UID of the Service whose limitations were reported
}

// The back-off of a failed sync.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// loop writes the first change of a burst at once and the rest together. Between
// changes it checks the kernel's rules.
func (p *Proxy) loop(ctx context.Context) error {
	if err := p.waitSynced(ctx); err != nil {
		return nil // ctx has ended
	}
	p.pending.all()
	watch := time.NewTicker(p.times.Watch)
	defer watch.Stop()
	guard := guard{times: p.times}
	retry := backoff.Backoff{Initial: firstRetry, Max: lastRetry}
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
			wait = retry.Next()
			p.cfg.Log.Error("write rules failed, retrying", "error", err, "in", wait)
			p.pending.note(func(*batch) {})
		} else {
			retry.Reset()
		}
		if backoff.Sleep(ctx, wait-time.Since(began)) != nil {
			return nil
		}
	}
}

// sync applies all pending changes: it builds the model, plans the rules, runs one
// iptables-restore, and then does what depends on the rules.
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

// podNetwork is the contributor name of the pod network's rules.
const podNetwork = iptables.Last + "pods"

// replanAll rebuilds the planner for the current node and returns the names of all
// Services, including removed ones.
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

// plan plans the rules of one Service from the informers' current objects.
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
	p.metrics.replaced(s.model, model)
	s.model = model
	if svc != nil && s.reported != svc.UID {
		s.reported = svc.UID
		p.report(svc, model)
	}
	p.served[n] = s
}

// report records events about what this node cannot provide for a Service.
func (p *Proxy) report(svc *corev1.Service, model services.Service) {
	warn := func(reason, text string) {
		p.cfg.Log.Warn("Service is not fully supported", "service", svc.Namespace+"/"+svc.Name, "why", text)
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

// applied does what must wait until the rules are written: delete stale flows, update
// health checks and metrics, and report the revision in the Lease.
func (p *Proxy) applied(ctx context.Context, todo batch, written netrules.Batch, began time.Time, full bool) {
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

// healthPorts returns the responses of all health check node ports.
func (p *Proxy) healthPorts() map[int32]HealthAnswer {
	out := map[int32]HealthAnswer{}
	for n, s := range p.served {
		if s.model.HealthCheckPort != 0 {
			out[s.model.HealthCheckPort] = HealthAnswer{Namespace: n.namespace, Service: n.name, LocalEndpoints: s.model.LocalReady}
		}
	}
	return out
}

// answers reports whether any of the ports had a usable endpoint.
func answers(ports []services.Port) bool {
	return slices.ContainsFunc(ports, func(p services.Port) bool { return p.Any })
}

// endStaleFlows deletes the tracked flows that changed Services no longer serve: UDP
// flows to removed endpoints, and all flows from a time without rules. It does not
// check other TCP flows, so an ordinary change of endpoints does not read the table.
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
				gone.Cluster, gone.Local = nil, nil // if it is still served, its endpoints were added above
				addFrontends(&fronts, &gone)
			}
		}
		s.was, s.fresh = nil, false
		p.served[n] = s
	}
	p.endFlows(&fronts)
}

// endLostFlows deletes the tracked flows that began while another program had removed
// our rules.
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
		p.cfg.Log.Warn("delete stale connection tracking entries failed; clients may wait for responses that cannot arrive", "error", err)
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
