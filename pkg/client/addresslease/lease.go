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

// Where the Leases are, and how they are known.
const (
	Namespace = metav1.NamespaceSystem
	Prefix    = "load-balancer-" // their names begin so
	Label     = "podium.dev/component"
	Component = "load-balancer-address"
	Selector  = Label + "=" + Component

	annotationAddress = "podium.dev/address"
	annotationService = "podium.dev/service"
	annotationClosing = "podium.dev/closing"
)

// Duration is how long a Lease is held by one renewal, unless the holder says
// otherwise in it.
const Duration = 9 * time.Second

// margin is what others wait longer than the holder, for clocks that do not
// run at quite the same speed.
const margin = 250 * time.Millisecond

// Claim is what a Lease is about.
type Claim struct {
	Address netip.Addr
	Service types.NamespacedName
	Closing bool   // the address is to fall silent: nobody may take it, and who holds it releases it
	Holder  string // a node; empty: nobody
}

// Name is that of an address's Lease. One name is one address, so that the API
// itself sees to it that no address is given twice.
func Name(a netip.Addr) string {
	if a.Is4() {
		return Prefix + a.String()
	}
	return Prefix + strings.ReplaceAll(a.StringExpanded(), ":", "-")
}

// New is the Lease of an address that nobody holds yet.
func New(a netip.Addr, service types.NamespacedName) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: Namespace, Name: Name(a),
		Labels:      map[string]string{Label: Component},
		Annotations: map[string]string{annotationAddress: a.String(), annotationService: service.String()},
	}}
}

// Parse reads a Lease.
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

// Close marks a Lease: its address is to fall silent.
func Close(l *coordinationv1.Lease) {
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, annotationClosing, "true")
}

// Holder is the node that holds a Lease, empty for none.
func Holder(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// Hold writes into a Lease that a node holds it from now on, or still.
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

// Release writes into a Lease that nobody holds it. Who held it has stopped
// announcing before.
func Release(l *coordinationv1.Lease) {
	nobody := ""
	l.Spec.HolderIdentity = &nobody
}

// held is how long a Lease is held after a renewal.
func held(l *coordinationv1.Lease) time.Duration {
	if l.Spec.LeaseDurationSeconds == nil {
		return Duration
	}
	return time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
}
