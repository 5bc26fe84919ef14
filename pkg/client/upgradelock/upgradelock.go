package upgradelock

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Namespace and name of the Lease.
const (
	Namespace = metav1.NamespaceSystem
	Name      = "podium-upgrade"
)

// Holder returns the node that holds the Lease at now, "" if the Lease was released or
// has expired.
func Holder(lease *coordinationv1.Lease, now time.Time) string {
	s := lease.Spec
	if s.HolderIdentity == nil || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return ""
	}
	if now.After(s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second)) {
		return ""
	}
	return *s.HolderIdentity
}
