package node

import (
	"context"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/backoff"
	"podium/pkg/client"
)

// leases renews the node's Lease, the heartbeat of the node.
type leases struct {
	api      client.Resource[*coordinationv1.Lease]
	log      *slog.Logger
	name     string
	duration time.Duration
	last     *coordinationv1.Lease
}

func newLeases(cfg Config) leases {
	return leases{
		api: client.For[*coordinationv1.Lease](cfg.Client).In(corev1.NamespaceNodeLease),
		log: cfg.Log, name: cfg.Name, duration: cfg.LeaseDuration,
	}
}

// run creates and renews the Lease until ctx ends. It waits while node returns nil.
func (l *leases) run(ctx context.Context, node func() *corev1.Node) {
	retry := backoff.Backoff{Initial: firstRetry, Max: lastRetry}
	for ctx.Err() == nil {
		wait := l.duration / 4
		if n := node(); n == nil {
			wait = firstRetry // until the node is registered
		} else if err := l.renew(ctx, n); err == nil {
			retry.Reset()
		} else if ctx.Err() == nil {
			wait = retry.Next()
			l.log.Warn("renew node lease failed", "error", err, "retry", wait)
		}
		_ = backoff.Sleep(ctx, wait) // an ended ctx ends the loop
	}
}

// renew creates or renews the Lease. After a conflict the next call reads it again.
func (l *leases) renew(ctx context.Context, n *corev1.Node) error {
	var err error
	if l.last == nil {
		l.last, err = l.api.Get(ctx, l.name)
		if apierrors.IsNotFound(err) {
			l.last, err = l.api.Create(ctx, l.fill(&coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: l.name, Namespace: corev1.NamespaceNodeLease},
			}, n))
			if err != nil {
				l.last = nil
			}
			return err
		}
		if err != nil {
			l.last = nil
			return err
		}
	}
	got, err := l.api.Update(ctx, l.fill(l.last.DeepCopy(), n))
	switch {
	case err == nil:
		l.last = got
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		l.last = nil // read it before the next update
	}
	return err
}

func (l *leases) fill(lease *coordinationv1.Lease, n *corev1.Node) *coordinationv1.Lease {
	seconds, now := int32(l.duration/time.Second), metav1.NowMicro()
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &l.name, &seconds, &now
	if len(lease.OwnerReferences) == 0 {
		lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}
	}
	return lease
}
