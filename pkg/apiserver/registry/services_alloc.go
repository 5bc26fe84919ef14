package registry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/scheme"
	"podium/pkg/storage"
)

// allocator allocates cluster IPs and node ports. It has no state of its own: the
// ledgers are in the store, which all API servers share. Safe for concurrent use.
type allocator struct {
	ranges    *serviceRanges
	ports     PortRange
	now       func() time.Time
	addresses *ledger
	nodePorts *ledger
}

func newAllocator(s *scheme.Scheme, cfg Config, ranges *serviceRanges) *allocator {
	a := &allocator{ranges: ranges, ports: cfg.NodePorts, now: cfg.Now, nodePorts: portLedger(cfg.Store)}
	a.addresses = addressLedger(cfg.Store, s, string(a.family()))
	return a
}

func (a *allocator) family() corev1.IPFamily {
	if a.ranges.initial.Addr().Is6() {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

func otherFamily(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// allocate implements Of.Allocate: it allocates what the type of svc needs and old
// does not have.
func (a *allocator) allocate(ctx context.Context, svc, old *corev1.Service, dryRun bool) (undo func(context.Context), err error) {
	t := &taking{a: a, svc: svc, dryRun: dryRun, had: holdings(old)}
	defer func() {
		if err != nil {
			t.undo(ctx)
		}
	}()
	a.setFamilies(svc)
	if err := t.clusterIP(ctx); err != nil {
		return nil, err
	}
	if err := t.servicePorts(ctx); err != nil {
		return nil, err
	}
	return t.undo, nil
}

// setFamilies sets the IP families and the policy if the user omitted them.
func (a *allocator) setFamilies(svc *corev1.Service) {
	if !needsClusterIP(svc) {
		return
	}
	spec := &svc.Spec
	if headless(svc) && len(spec.Selector) == 0 && spec.IPFamilyPolicy == nil {
		// Its endpoints may be of both families, regardless of the cluster's.
		spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
		if len(spec.IPFamilies) == 0 {
			spec.IPFamilies = []corev1.IPFamily{a.family()}
		}
		if len(spec.IPFamilies) == 1 {
			spec.IPFamilies = append(spec.IPFamilies, otherFamily(spec.IPFamilies[0]))
		}
		return
	}
	if spec.IPFamilyPolicy == nil {
		spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{a.family()}
	}
}

// release implements Of.Release. It ignores errors: RepairServices releases what
// remains.
func (a *allocator) release(ctx context.Context, svc, old *corev1.Service) {
	keeps := holdings(svc)
	for ip := range holdings(old).addresses {
		if !keeps.addresses[ip] {
			_ = a.addresses.giveBack(ctx, ip, ownerOf(old))
		}
	}
	for port := range holdings(old).ports {
		if !keeps.ports[port] {
			_ = a.nodePorts.giveBack(ctx, portName(port), ownerOf(old))
		}
	}
}

func ownerOf(svc *corev1.Service) string { return svc.Namespace + "/" + svc.Name }

func portName(port int32) string { return strconv.Itoa(int(port)) }

// held is the set of addresses and ports that a Service owns.
type held struct {
	addresses map[string]bool
	ports     map[int32]bool
}

// holdings returns the addresses and ports in the spec of svc; none if svc is nil.
func holdings(svc *corev1.Service) held {
	h := held{map[string]bool{}, map[int32]bool{}}
	if svc == nil {
		return h
	}
	if needsClusterIP(svc) {
		if ip, err := netip.ParseAddr(svc.Spec.ClusterIP); err == nil {
			h.addresses[ip.String()] = true
		}
	}
	if external(svc) {
		for _, p := range svc.Spec.Ports {
			if p.NodePort != 0 {
				h.ports[p.NodePort] = true
			}
		}
		if p := svc.Spec.HealthCheckNodePort; p != 0 {
			h.ports[p] = true
		}
	}
	return h
}

// taking is one allocation in progress. One goroutine uses it.
type taking struct {
	a      *allocator
	svc    *corev1.Service
	had    held
	dryRun bool

	newAddresses []string
	newPorts     []int32
}

// undo releases what this allocation has taken, and nothing else.
func (t *taking) undo(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	for _, ip := range t.newAddresses {
		_ = t.a.addresses.giveBack(ctx, ip, ownerOf(t.svc))
	}
	for _, port := range t.newPorts {
		_ = t.a.nodePorts.giveBack(ctx, portName(port), ownerOf(t.svc))
	}
	t.newAddresses, t.newPorts = nil, nil
}

func (t *taking) claim() claim {
	return claim{Namespace: t.svc.Namespace, Name: t.svc.Name, Since: t.a.now()}
}

// clusterIP allocates the cluster IP that the user chose, or any free one.
func (t *taking) clusterIP(ctx context.Context) error {
	spec := &t.svc.Spec
	if !needsClusterIP(t.svc) || headless(t.svc) {
		return nil
	}
	if spec.ClusterIP == "" {
		ip, err := t.anyIP(ctx)
		if err != nil {
			return err
		}
		spec.ClusterIP, spec.ClusterIPs = ip.String(), []string{ip.String()}
		return nil
	}
	ip, err := netip.ParseAddr(spec.ClusterIP)
	if err != nil {
		return t.invalid(t.badIP(err))
	}
	if t.had.addresses[ip.String()] {
		return nil
	}
	if !within(t.a.ranges.ready(), ip) {
		return t.invalid(t.badIP(errors.New("the provided network does not match the current range")))
	}
	err = t.takeIP(ctx, ip)
	if errors.Is(err, errTaken) {
		return t.invalid(t.badIP(errors.New("provided IP is already allocated")))
	}
	return err
}

func (t *taking) badIP(err error) *field.Error {
	return field.Invalid(field.NewPath("spec", "clusterIPs"), []string{t.svc.Spec.ClusterIP},
		fmt.Sprintf("failed to allocate IP %v: %v", t.svc.Spec.ClusterIP, err))
}

func (t *taking) invalid(errs ...*field.Error) error {
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), t.svc.Name, errs)
}

// takeIP allocates ip. It returns errTaken if another Service has it.
func (t *taking) takeIP(ctx context.Context, ip netip.Addr) error {
	if t.dryRun {
		return free(t.a.addresses.get(ctx, ip.String()))
	}
	holder, err := t.a.addresses.take(ctx, ip.String(), t.claim())
	if err := t.sameOwner(holder, err); err != nil {
		return err
	}
	t.newAddresses = append(t.newAddresses, ip.String())
	return nil
}

// free converts the result of ledger.get to the error that take would return.
func free(_ claim, err error) error {
	switch {
	case err == nil:
		return errTaken
	case errors.Is(err, storage.ErrNotFound):
		return nil
	}
	return err
}

// sameOwner returns a conflict if this Service holds a name that its stored state
// does not have: another request is changing the Service at the same time.
// Otherwise it returns err.
func (t *taking) sameOwner(holder claim, err error) error {
	if errors.Is(err, errTaken) && holder.owner() == ownerOf(t.svc) && t.svc.UID != "" && t.svc.ResourceVersion != "" {
		return apierrors.NewConflict(corev1.Resource("services"), t.svc.Name, errors.New("another request is changing its addresses or ports"))
	}
	return err
}

// randomTries is the number of random attempts before searching for a free name in
// order.
const randomTries = 8

// anyIP allocates a free address of any range.
func (t *taking) anyIP(ctx context.Context) (netip.Addr, error) {
	for _, r := range t.a.ranges.ready() {
		ip, err := t.anyOf(ctx, r)
		if err != nil || ip.IsValid() {
			return ip, err
		}
	}
	return netip.Addr{}, apierrors.NewInternalError(errors.New("failed to allocate a serviceIP: range is full"))
}

// anyOf allocates a free address of a range, preferably from its upper part, because
// users choose static addresses from the lower part (KEP-3070). It returns the zero
// Addr if the range is full.
func (t *taking) anyOf(ctx context.Context, r ipRange) (netip.Addr, error) {
	size := r.size()
	low := band(size, 256)
	for range randomTries {
		ip := r.nth(low + rand.Int64N(size-low))
		if err := t.takeIP(ctx, ip); err == nil || !errors.Is(err, errTaken) {
			return ip, err
		}
	}
	taken, err := t.a.addresses.all(ctx)
	if err != nil {
		return netip.Addr{}, err
	}
	for i := range size {
		ip := r.nth((i + low) % size)
		if _, ok := taken[ip.String()]; ok {
			continue
		}
		if err := t.takeIP(ctx, ip); err == nil || !errors.Is(err, errTaken) {
			return ip, err
		}
	}
	return netip.Addr{}, nil
}

// band returns the size of the lower part of a range, which is left to static
// allocation.
func band(size, most int64) int64 {
	const least = 16
	if size <= least {
		return 0
	}
	return min(max(least, size/least), most)
}

// FirstServiceIP returns the cluster IP of the Service default/kubernetes.
func FirstServiceIP(cidr netip.Prefix) netip.Addr { return cidr.Masked().Addr().Next() }
