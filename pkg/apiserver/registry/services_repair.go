package registry

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"podium/pkg/scheme"
)

// claimGrace is the age up to which a claim without a Service is kept: the Service
// may be about to be written. No request takes longer than this.
const claimGrace = time.Minute

// RepairServices makes the ledgers of addresses and node ports match the existing
// Services: it releases what a crash between two writes has left behind, and claims
// what a Service has without a claim. Several API servers may run it at the same
// time. It repairs as much as possible and returns the joined errors.
func RepairServices(ctx context.Context, s *scheme.Scheme, b Backend, cfg Config) error {
	list, err := b.List(ctx, corev1.SchemeGroupVersion.WithResource("services"), "")
	if err != nil {
		return fmt.Errorf("list services: %w", err)
	}
	cidrs, err := b.List(ctx, networkingv1.SchemeGroupVersion.WithResource("servicecidrs"), "")
	if err != nil {
		return fmt.Errorf("list ServiceCIDRs: %w", err)
	}
	ranges := newServiceRanges(cfg.ServiceCIDR)
	ranges.Replace(cidrs)
	a, all := newAllocator(s, cfg, ranges), ranges.all()
	addresses, ports := map[string]*corev1.Service{}, map[string]*corev1.Service{}
	for _, obj := range list {
		svc := obj.(*corev1.Service)
		h := holdings(svc)
		for ip := range h.addresses {
			if within(all, netip.MustParseAddr(ip)) {
				addresses[ip] = svc
			}
		}
		for port := range h.ports {
			if port >= a.ports.First && port <= a.ports.Last {
				ports[portName(port)] = svc
			}
		}
	}
	inRange := func(name string) bool { _, err := netip.ParseAddr(name); return err == nil }
	isPort := func(name string) bool { _, err := strconv.Atoi(name); return err == nil }
	return errors.Join(a.repair(ctx, a.addresses, addresses, inRange), a.repair(ctx, a.nodePorts, ports, isPort))
}

// repair makes one ledger match users. It ignores claims whose names are not valid, and those of users.
func (a *allocator) repair(ctx context.Context, l *ledger, users map[string]*corev1.Service, valid func(name string) bool) error {
	claims, err := l.all(ctx)
	if err != nil {
		return fmt.Errorf("list %s: %w", l.prefix, err)
	}
	var errs []error
	for name, c := range claims {
		user := users[name]
		switch {
		case !valid(name) || c.foreign:
		case user != nil && ownerOf(user) == c.owner():
		case a.now().Sub(c.Since) < claimGrace:
		default:
			errs = append(errs, l.drop(ctx, name, c))
			delete(claims, name)
		}
	}
	for name, user := range users {
		if _, ok := claims[name]; ok {
			continue
		}
		_, err := l.take(ctx, name, claim{Namespace: user.Namespace, Name: user.Name, Since: a.now()})
		if err != nil && !errors.Is(err, errTaken) {
			errs = append(errs, fmt.Errorf("claim %s for Service %s: %w", name, ownerOf(user), err))
		}
	}
	return errors.Join(errs...)
}
