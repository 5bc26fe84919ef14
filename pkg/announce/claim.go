package announce

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
	// slack is how much sooner than it must a holder falls silent: the kernel
	// counts lifetimes in seconds, and looks at them once a second.
	slack = 1500 * time.Millisecond
	// writing bounds a renewal, so that there is time for another.
	writing = time.Second
	// turn is how much later each candidate acts than the one before it.
	turn = 300 * time.Millisecond
	// detour is how much later a node acts that has no interface in the
	// address's own network.
	detour = 2 * time.Second
	// settle is how long another must have been the better place without a break
	// before an address that is answered moves there.
	settle = 5 * time.Minute
	// stay is how long addresses outlast a kube-proxy that was stopped.
	stay = 15 * time.Second
	// retell is how often the neighbours are told again.
	retell = 10 * time.Second
	// idle is how often an address is looked at without a reason.
	idle = 30 * time.Second
)

// claim is one address as this node sees it. All but poke belongs to its own
// goroutine.
type claim struct {
	*Announcer
	address netip.Addr
	name    string // of the Lease
	log     *slog.Logger
	wake    chan struct{}
	service types.NamespacedName // the announcer's lock is for it

	seen     addresslease.Watch
	until    time.Time // it is on our interface, and may be until then; zero: it is not
	renewed  time.Time // when the renewal was sent by which it is
	told     time.Time // when the neighbours were last told
	tells    int       // how often they were, since it came here
	better   time.Time // since when another node is the better place; zero: none is
	failed   time.Time // when a write last failed; the next one waits a little
	reported string    // what was last told about it in an event
}

func (c *claim) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run looks after the address until its Lease is gone or ctx ends.
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

// step looks at the address once, and says when to look again.
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

func (c *claim) held() bool { return !c.until.IsZero() }

// shouldGo says whether the address is better announced by another node: when
// this one may not, and some other may; and when it has long been another's
// turn, so that nodes that come back get their share.
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

// keep renews the Lease when it is time. It also takes up what an earlier life
// of this process held, or a write whose answer was lost.
func (c *claim) keep(ctx context.Context) time.Duration {
	if !c.held() && !c.here() && !c.cfg.Ready() {
		return turn
	}
	every := c.cfg.Duration / 6
	if wait := time.Until(c.renewed.Add(every)); c.held() && wait > 0 {
		c.retell()
		return min(wait, c.untilRetold())
	}
	if wait := time.Until(c.failed.Add(turn)); wait > 0 {
		return wait
	}
	c.write(ctx)
	return turn
}

// here says whether the address is on an interface of this machine.
func (c *claim) here() bool {
	held, err := c.cfg.Network.Held()
	return err == nil && slices.Contains(held, c.address)
}

// wait takes the address when it is free and this node's turn.
func (c *claim) wait(ctx context.Context, holder string, order []string) time.Duration {
	order = slices.DeleteFunc(order, func(n string) bool { return n == holder })
	at := slices.Index(order, c.cfg.Node)
	if at < 0 {
		return idle // whatever makes it our turn wakes us
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

// report tells once that an address cannot be announced here.
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

// write takes or renews the Lease and, once that is granted, holds the address.
// It replaces the version that was last seen and no other.
func (c *claim) write(ctx context.Context) {
	sent := time.Now()
	lease := c.seen.Lease().DeepCopy()
	addresslease.Hold(lease, c.cfg.Node, c.cfg.Duration)
	if err := c.put(ctx, lease); err != nil {
		if c.held() {
			c.log.Warn("the Lease of an address was not renewed", "error", err, "left", time.Until(c.until).Round(time.Millisecond))
		}
		return
	}
	c.hold(sent, c.cfg.Duration)
}

// put writes the Lease and takes note of the answer. Where somebody else wrote,
// it reads what: the view may be behind.
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

// hold puts the address on the interface for as long as a renewal that was sent
// then allows.
func (c *claim) hold(sent time.Time, d time.Duration) {
	until := sent.Add(d - slack)
	lifetime := time.Until(until).Truncate(time.Second)
	if lifetime < time.Second {
		return // the answer took too long; what there is of time left is the kernel's
	}
	if err := c.cfg.Network.Hold(c.address, lifetime); err != nil {
		c.log.Error("the address could not be put on the interface", "error", err)
		return
	}
	if !c.held() {
		c.tells, c.told = 0, time.Time{}
		c.log.Info("announcing the address")
		c.event("this node announces " + c.address.String())
	}
	c.until, c.renewed = until, sent
	c.retell()
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

// retell tells the neighbours when it is time: thrice in the first seconds, for
// what may be lost, and now and then, for those who learned wrong.
func (c *claim) retell() {
	if c.untilRetold() > 0 {
		return
	}
	if err := c.cfg.Network.Tell(c.address); err != nil {
		c.log.Warn("the neighbours were not told that the address is here; they will find out by themselves", "error", err)
	}
	c.told = time.Now()
	c.tells++
}

func (c *claim) untilRetold() time.Duration {
	every := retell
	if c.tells < 3 {
		every = time.Second
	}
	return time.Until(c.told.Add(every))
}

// drop takes the address from the interface. Should that fail the kernel does
// it when the lifetime is over.
func (c *claim) drop(why string) {
	if !c.held() && !c.here() {
		return
	}
	if err := c.cfg.Network.Drop(c.address); err != nil {
		c.log.Error("the address was not taken from the interface; the kernel does it soon", "error", err)
		return
	}
	c.until, c.better = time.Time{}, time.Time{}
	c.log.Info("not announcing the address any more", "why", why)
}

// release gives the Lease back, once the address is off the interface.
func (c *claim) release(ctx context.Context) time.Duration {
	c.drop("another node is the place for it, or its Service has given it up")
	if c.held() || c.here() {
		return turn // only silence may be told
	}
	if wait := time.Until(c.failed.Add(turn)); wait > 0 {
		return wait
	}
	lease := c.seen.Lease().DeepCopy()
	addresslease.Release(lease)
	if err := c.put(ctx, lease); err != nil {
		c.log.Warn("the Lease of an address was not released; it runs out by itself", "error", err)
	}
	return turn
}

// end is the last of it. A machine that goes down makes room at once. One that
// stays keeps the address for a while: the next kube-proxy goes on with it.
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
		c.log.Warn("the address may move to another node", "error", err)
		return
	}
	c.hold(sent, stay)
}
