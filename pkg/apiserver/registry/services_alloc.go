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

// allocator hands out cluster IPs and node ports. It has no state of its own:
// the ledgers are in the store, where all apiservers see them.
type allocator struct {
	cidr      netip.Prefix
	ports     PortRange
	now       func() time.Time
	addresses *ledger
	nodePorts *ledger
}

func newAllocator(s *scheme.Scheme, cfg Config) *allocator {
	a := &allocator{cidr: cfg.ServiceCIDR.Masked(), ports: cfg.NodePorts, now: cfg.Now, nodePorts: portLedger(cfg.Store)}
	a.addresses = addressLedger(cfg.Store, s, string(a.family()))
	return a
}

func (a *allocator) family() corev1.IPFamily {
	if a.cidr.Addr().Is6() {
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

// allocate gives svc what its type needs and old does not already have.
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

// setFamilies says the address family where the user did not.
func (a *allocator) setFamilies(svc *corev1.Service) {
	if !needsClusterIP(svc) {
		return
	}
	spec := &svc.Spec
	if headless(svc) && len(spec.Selector) == 0 && spec.IPFamilyPolicy == nil {
		// Its endpoints may be of both families, whatever the cluster has.
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

// release gives back what old had and svc, which may be nil, has not. What
// cannot be given back now is found by RepairServices.
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

// held is what a Service owns of the stocks.
type held struct {
	addresses map[string]bool
	ports     map[int32]bool
}

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

// taking is one allocation under way.
type taking struct {
	a      *allocator
	svc    *corev1.Service
	had    held
	dryRun bool

	newAddresses []string
	newPorts     []int32
}

// undo gives back what was taken here, and only that.
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
	if !t.a.usable(ip) {
		return t.invalid(t.badIP(fmt.Errorf("the provided IP (%v) is not in the valid range. The range of valid IPs is %v", ip, t.a.cidr)))
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

// takeIP returns errTaken if another Service has it.
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

// free turns a look into a ledger into what taking would have said.
func free(_ claim, err error) error {
	switch {
	case err == nil:
		return errTaken
	case errors.Is(err, storage.ErrNotFound):
		return nil
	}
	return err
}

// sameOwner: if this very Service holds what it does not have yet, another
// request is changing it at this moment. It then ends before or after ours.
func (t *taking) sameOwner(holder claim, err error) error {
	if errors.Is(err, errTaken) && holder.owner() == ownerOf(t.svc) && t.svc.UID != "" && t.svc.ResourceVersion != "" {
		return apierrors.NewConflict(corev1.Resource("services"), t.svc.Name, errors.New("another request is changing its addresses or ports"))
	}
	return err
}

// How often to try a random one before looking for what is free.
const randomTries = 8

// anyIP takes a free address, from the upper part of the range while there is
// one: people choose fixed addresses from the lower (KEP-3070).
func (t *taking) anyIP(ctx context.Context) (netip.Addr, error) {
	a := t.a
	size := a.size()
	low := band(size, 256)
	for range randomTries {
		ip := a.nth(low + rand.Int64N(size-low))
		if err := t.takeIP(ctx, ip); err == nil || !errors.Is(err, errTaken) {
			return ip, err
		}
	}
	taken, err := a.addresses.all(ctx)
	if err != nil {
		return netip.Addr{}, err
	}
	for i := range size {
		ip := a.nth((i + low) % size)
		if _, ok := taken[ip.String()]; ok {
			continue
		}
		if err := t.takeIP(ctx, ip); err == nil || !errors.Is(err, errTaken) {
			return ip, err
		}
	}
	return netip.Addr{}, apierrors.NewInternalError(errors.New("failed to allocate a serviceIP: range is full"))
}

// band is how much of a range is left to those who choose for themselves.
func band(size, most int64) int64 {
	const least = 16
	if size <= least {
		return 0
	}
	return min(max(least, size/least), most)
}

// size is how many addresses can be given out: not the network's own, nor
// IPv4's broadcast. An endless range counts as far as anyone will get.
func (a *allocator) size() int64 {
	const endless = 1 << 32
	bits := a.cidr.Addr().BitLen() - a.cidr.Bits()
	if bits >= 32 {
		return endless - 2
	}
	size := int64(1)<<bits - 1
	if a.cidr.Addr().Is4() {
		size--
	}
	return max(size, 1)
}

// nth counts from 0, which is the first address after the network's.
func (a *allocator) nth(n int64) netip.Addr {
	raw := a.cidr.Addr().AsSlice()
	n++
	for i := len(raw) - 1; i >= 0 && n > 0; i-- {
		n += int64(raw[i])
		raw[i] = byte(n)
		n >>= 8
	}
	ip, _ := netip.AddrFromSlice(raw)
	return ip
}

func (a *allocator) usable(ip netip.Addr) bool {
	return a.cidr.Contains(ip) && ip != a.cidr.Addr() && (ip.Is6() || ip != a.nth(a.size()))
}

// FirstServiceIP is that of the Service default/kubernetes.
func FirstServiceIP(cidr netip.Prefix) netip.Addr { return cidr.Masked().Addr().Next() }
