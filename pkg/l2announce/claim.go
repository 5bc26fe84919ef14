package l2announce

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client/addresslease"
)

const (
	// slack is how much before the end of its Lease a holder stops answering: the
	// kernel counts lifetimes in seconds and checks them once a second.
	slack = 1500 * time.Millisecond
	// writing is the timeout of a renewal; it leaves time for another one.
	writing = time.Second
	// turn is how much later than its predecessor each candidate acts.
	turn = 300 * time.Millisecond
	// detour is how much later a node acts that has no interface in the network of
	// the address.
	detour = 2 * time.Second
	// settle is how long another node must be preferred without interruption before
	// an announced address moves there.
	settle = 5 * time.Minute
	// stay is how long addresses remain after kube-proxy was stopped.
	stay = 15 * time.Second
	// reannounce is the interval of announcements to the neighbours.
	reannounce = 10 * time.Second
	// idle is the interval of checks of an address without any event.
	idle = 30 * time.Second
)

// claim is the state of one address on this node. Only its own goroutine uses it,
// except for poke and service.
type claim struct {
	*Announcer
	address netip.Addr
	name    string // of the Lease
	log     *slog.Logger
	wake    chan struct{}
	service types.NamespacedName // guarded by the announcer's lock

	seen          addresslease.Watch
	until         time.Time // the address is on our interface until then; zero: it is not
	renewed       time.Time // when the last successful renewal was sent
	announced     time.Time // when the neighbours were last informed
	announcements int       // how often they were, since the address came here
	better        time.Time // since when another node is preferred; zero: none is
	failed        time.Time // when a write last failed, for the back-off
	reported      string    // the last reported reason why the address cannot be announced
}

func (c *claim) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run manages the address until its Lease is deleted or ctx ends.
func (c *claim) run(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			c.end(context.WithoutCancel(ctx))
			return
		case <-c.wake:
		case <-t.C:
		}
		if ctx.Err() != nil {
			continue
		}
		lease, ok := c.leases.Get(addresslease.Namespace, c.name)
		if !ok {
			c.drop("its Service has given it up")
			if c.forget(c) {
				return
			}
			continue
		}
		c.seen.See(lease)
		t.Reset(max(c.step(ctx), time.Millisecond))
	}
}

// step checks the address once and returns when to check it again.
func (c *claim) step(ctx context.Context) time.Duration {
	lease := c.seen.Lease()
	what, err := addresslease.Parse(lease)
	if err != nil {
		return idle
	}
	if wait := time.Until(c.until); c.held() && wait <= 0 {
		c.drop("its Lease was not renewed in time")
	}
	svc, endpoints := c.cfg.Service(what.Service.Namespace, what.Service.Name)
	order := candidates(c.address, svc, endpoints, c.nodes.List())
	switch {
	case what.Holder == c.cfg.Node && (what.Closing || c.shouldGo(order)):
		return c.release(ctx)
	case what.Holder == c.cfg.Node:
		return c.keep(ctx)
	case c.held():
		c.drop("node " + what.Holder + " has it")
	}
	if what.Closing {
		return idle
	}
	return c.wait(ctx, what.Holder, order)
}

// held reports whether this process has the address on the interface.
func (c *claim) held() bool { return !c.until.IsZero() }

// shouldGo reports whether another node should announce the address: this node is
// not a candidate but another is, or another has been preferred for settle, so that
// nodes that come back get their share.
func (c *claim) shouldGo(order []string) bool {
	at := slices.Index(order, c.cfg.Node)
	switch {
	case len(order) == 0 || at == 0:
		c.better = time.Time{}
		return false
	case at < 0:
		return true
	case c.better.IsZero():
		c.better = time.Now()
	}
	return time.Since(c.better) >= settle
}

// keep renews the Lease when that is due. It also adopts an address that an earlier
// process held, and a write whose response was lost.
func (c *claim) keep(ctx context.Context) time.Duration {
	if !c.held() && !c.here() && !c.cfg.Ready() {
		return turn
	}
	every := c.cfg.Duration / 6
	if wait := time.Until(c.renewed.Add(every)); c.held() && wait > 0 {
		c.reannounce()
		return min(wait, c.untilReannounced())
	}
	if wait := time.Until(c.failed.Add(turn)); wait > 0 {
		return wait
	}
	c.write(ctx)
	return turn
}

// here reports whether the address is on an interface of this machine.
func (c *claim) here() bool {
	held, err := c.cfg.Network.Held()
	return err == nil && slices.Contains(held, c.address)
}

// wait acquires the Lease when the address is free and this node's turn has come.
func (c *claim) wait(ctx context.Context, holder string, order []string) time.Duration {
	order = slices.DeleteFunc(order, func(n string) bool { return n == holder })
	at := slices.Index(order, c.cfg.Node)
	if at < 0 {
		return idle // an event wakes the claim when this node becomes a candidate
	}
	reach, err := c.cfg.Network.Reach(c.address)
	c.report(reach, err)
	if reach == Nowhere {
		return idle
	}
	from := c.seen.Free().Add(time.Duration(at) * turn)
	if reach == Anywhere {
		from = from.Add(detour)
	}
	if retry := c.failed.Add(turn); from.Before(retry) {
		from = retry
	}
	if wait := time.Until(from); wait > 0 {
		return wait
	}
	if !c.cfg.Ready() {
		return turn
	}
	c.write(ctx)
	return turn
}

// report logs once that this node cannot announce the address.
func (c *claim) report(reach Reach, err error) {
	text := ""
	if reach == Nowhere {
		text = "no interface of this node has a network with the address, and there is no default route"
		if err != nil {
			text = err.Error()
		}
	}
	if text != "" && text != c.reported {
		c.log.Warn("this node cannot announce an address", "why", text)
	}
	c.reported = text
}

// write acquires or renews the Lease and, if that succeeds, holds the address. The
// write fails if the Lease has changed since it was last seen.
func (c *claim) write(ctx context.Context) {
	sent := time.Now()
	lease := c.seen.Lease().DeepCopy()
	addresslease.Hold(lease, c.cfg.Node, c.cfg.Duration)
	if err := c.put(ctx, lease); err != nil {
		if c.held() {
			c.log.Warn("renew Lease of the address failed", "error", err, "left", time.Until(c.until).Round(time.Millisecond))
		}
		return
	}
	c.hold(sent, c.cfg.Duration)
}

// put writes the Lease and records the response. On a conflict it reads the Lease,
// because the informer may be behind.
func (c *claim) put(ctx context.Context, lease *coordinationv1.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, writing)
	defer cancel()
	now, err := c.api.Update(ctx, lease)
	if apierrors.IsConflict(err) {
		if other, getErr := c.api.Get(ctx, c.name); getErr == nil {
			c.seen.See(other)
		}
	}
	if err != nil {
		c.failed = time.Now()
		return err
	}
	c.seen.See(now)
	return nil
}

// hold adds the address to the interface for as long as a renewal sent at sent
// permits.
func (c *claim) hold(sent time.Time, d time.Duration) {
	until := sent.Add(d - slack)
	lifetime := time.Until(until).Truncate(time.Second)
	if lifetime < time.Second {
		return // the response came too late; the kernel removes the address
	}
	if err := c.cfg.Network.Hold(c.address, lifetime); err != nil {
		c.log.Error("add address to the interface failed", "error", err)
		return
	}
	if !c.held() {
		c.announcements, c.announced = 0, time.Time{}
		c.log.Info("load-balancer address acquired")
		c.event("this node announces " + c.address.String())
	}
	c.until, c.renewed = until, sent
	c.reannounce()
}

func (c *claim) event(text string) {
	what, err := addresslease.Parse(c.seen.Lease())
	if err != nil {
		return
	}
	if svc, _ := c.cfg.Service(what.Service.Namespace, what.Service.Name); svc != nil {
		c.cfg.Events.Event(svc, corev1.EventTypeNormal, "AddressAnnounced", text+" (node "+c.cfg.Node+")")
	}
}

// reannounce announces the address to the neighbours when that is due: three times in the
// first seconds, because packets can be lost, and then every retell interval, to
// correct neighbours that learned something else.
func (c *claim) reannounce() {
	if c.untilReannounced() > 0 {
		return
	}
	if err := c.cfg.Network.Announce(c.address); err != nil {
		c.log.Warn("send gratuitous ARP or neighbour advertisement failed; neighbours will learn the address by themselves", "error", err)
	}
	c.announced = time.Now()
	c.announcements++
}

func (c *claim) untilReannounced() time.Duration {
	every := reannounce
	if c.announcements < 3 {
		every = time.Second
	}
	return time.Until(c.announced.Add(every))
}

// drop removes the address from the interface. If that fails, the kernel removes it
// when its lifetime ends.
func (c *claim) drop(why string) {
	if !c.held() && !c.here() {
		return
	}
	if err := c.cfg.Network.Drop(c.address); err != nil {
		c.log.Error("remove address from the interface failed; it will expire", "error", err)
		return
	}
	c.until, c.better = time.Time{}, time.Time{}
	c.log.Info("load-balancer address released", "why", why)
}

// release releases the Lease after the address is off the interface.
func (c *claim) release(ctx context.Context) time.Duration {
	c.drop("another node is the place for it, or its Service has given it up")
	if c.held() || c.here() {
		return turn // release only after this node has stopped answering
	}
	if wait := time.Until(c.failed.Add(turn)); wait > 0 {
		return wait
	}
	lease := c.seen.Lease().DeepCopy()
	addresslease.Release(lease)
	if err := c.put(ctx, lease); err != nil {
		c.log.Warn("release Lease of the address failed; it will expire", "error", err)
	}
	return turn
}

// end ends the claim. If the machine is shutting down, it releases the address at
// once. Otherwise the address stays for a while, for the next kube-proxy to adopt.
func (c *claim) end(ctx context.Context) {
	if !c.held() {
		return
	}
	if c.cfg.Leaving() {
		c.failed = time.Time{}
		c.release(ctx)
		return
	}
	sent := time.Now()
	lease := c.seen.Lease().DeepCopy()
	if addresslease.Holder(lease) != c.cfg.Node {
		c.drop("another node has it")
		return
	}
	addresslease.Hold(lease, c.cfg.Node, stay)
	if err := c.put(ctx, lease); err != nil {
		c.log.Warn("renewal of the address is overdue; another node may take it over", "error", err)
		return
	}
	c.hold(sent, stay)
}
