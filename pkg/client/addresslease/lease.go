package addresslease

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Namespace, name prefix and label of the Leases.
const (
	Namespace = metav1.NamespaceSystem
	Prefix    = "load-balancer-" // of the Leases' names
	Label     = "podium.dev/component"
	Component = "load-balancer-address"
	Selector  = Label + "=" + Component

	annotationAddress = "podium.dev/address"
	annotationService = "podium.dev/service"
	annotationClosing = "podium.dev/closing"
)

// Duration is the time that one renewal holds a Lease, unless the Lease sets
// spec.leaseDurationSeconds.
const Duration = 9 * time.Second

// margin is added by the other nodes to the lease duration, because clocks do not run
// at exactly the same speed.
const margin = 250 * time.Millisecond

// Claim is the content of a Lease.
type Claim struct {
	Address netip.Addr
	Service types.NamespacedName
	Closing bool   // the address is being withdrawn: no node may acquire the Lease and its holder releases it
	Holder  string // a node; "" if the Lease is free
}

// Name returns the name of the Lease of an address. The name follows from the
// address, so the API server prevents a second allocation of the same address.
func Name(a netip.Addr) string {
	if a.Is4() {
		return Prefix + a.String()
	}
	return Prefix + strings.ReplaceAll(a.StringExpanded(), ":", "-")
}

// New returns the Lease of an address without a holder.
func New(a netip.Addr, service types.NamespacedName) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: Namespace, Name: Name(a),
		Labels:      map[string]string{Label: Component},
		Annotations: map[string]string{annotationAddress: a.String(), annotationService: service.String()},
	}}
}

// Parse returns the content of a Lease, or an error if its annotations are invalid.
func Parse(l *coordinationv1.Lease) (Claim, error) {
	a, err := netip.ParseAddr(l.Annotations[annotationAddress])
	if err != nil || l.Name != Name(a) {
		return Claim{}, fmt.Errorf("lease %s: annotation %s is %q, which is not the address in its name", l.Name, annotationAddress, l.Annotations[annotationAddress])
	}
	namespace, name, ok := strings.Cut(l.Annotations[annotationService], "/")
	if !ok || namespace == "" || name == "" {
		return Claim{}, fmt.Errorf("lease %s: annotation %s is %q, not NAMESPACE/NAME", l.Name, annotationService, l.Annotations[annotationService])
	}
	_, closing := l.Annotations[annotationClosing]
	return Claim{Address: a, Service: types.NamespacedName{Namespace: namespace, Name: name}, Closing: closing, Holder: Holder(l)}, nil
}

// Close marks the address of a Lease as being withdrawn.
func Close(l *coordinationv1.Lease) {
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, annotationClosing, "true")
}

// Holder returns the name of the node that holds a Lease, "" if it is free.
func Holder(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// Hold sets node as the holder of a Lease for d, from now on. It counts a transition
// if the holder changes. It only changes l; the caller writes it to the API.
func Hold(l *coordinationv1.Lease, node string, d time.Duration) {
	now := metav1.NowMicro()
	seconds := int32(d / time.Second)
	if Holder(l) != node {
		transitions := int32(1)
		if l.Spec.LeaseTransitions != nil {
			transitions = *l.Spec.LeaseTransitions + 1
		}
		l.Spec.LeaseTransitions, l.Spec.AcquireTime = &transitions, &now
	}
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &node, &seconds, &now
}

// Release clears the holder of a Lease. The holder must have stopped announcing. It
// only changes l; the caller writes it to the API.
func Release(l *coordinationv1.Lease) {
	free := ""
	l.Spec.HolderIdentity = &free
}

// held returns the time that a renewal holds a Lease.
func held(l *coordinationv1.Lease) time.Duration {
	if l.Spec.LeaseDurationSeconds == nil {
		return Duration
	}
	return time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
}
