package proxy

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/backoff"
	"podium/pkg/client"
)

// The Lease in which a proxy reports the revision of its rules. Kubelets stop a
// terminating pod's containers when it is out of rotation on all nodes.
const (
	leaseNamespace      = metav1.NamespaceSystem
	leaseDuration       = 40 * time.Second
	leaseRenewal        = 10 * time.Second
	leaseWrite          = 5 * time.Second // the timeout of a write
	leaseReleaseTimeout = time.Second     // the timeout of the last write
	labelComponent      = "podium.dev/component"
	annotationApplied   = "podium.dev/endpoints-applied"
)

// lease reports up to which EndpointSlice revision this node's rules are. It is
// renewed periodically, and at once if a kubelet may wait for it.
type lease struct {
	leases client.Resource[*coordinationv1.Lease]
	node   string
	log    *slog.Logger

	mu       sync.Mutex
	revision uint64
	ready    bool // rules have been applied at least once
	wake     chan struct{}

	last *coordinationv1.Lease // the version on the server; only run uses it
}

func newLease(c *client.Client, node string, log *slog.Logger) *lease {
	return &lease{
		leases: client.For[*coordinationv1.Lease](c).In(leaseNamespace),
		node:   node, log: log, wake: make(chan struct{}, 1),
	}
}

// applied records that the rules reflect all slices up to the revision. urgent means
// that an endpoint is terminating and its kubelet may wait; then the Lease is written
// at once.
func (l *lease) applied(revision uint64, urgent bool) {
	l.mu.Lock()
	first := !l.ready
	l.revision, l.ready = max(l.revision, revision), true
	l.mu.Unlock()
	if !urgent && !first {
		return
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run writes the Lease until ctx ends and then deletes it, so that kubelets do not
// wait for a stopped proxy.
func (l *lease) run(ctx context.Context, renew time.Duration) error {
	t := time.NewTicker(renew)
	defer t.Stop()
	retry := backoff.Backoff{Initial: firstRetry, Max: leaseRenewal}
	for {
		select {
		case <-ctx.Done():
			l.release(context.WithoutCancel(ctx))
			return nil
		case <-t.C:
		case <-l.wake:
		}
		err := l.write(ctx)
		if err == nil {
			retry.Reset()
			continue
		}
		again := retry.Failing()
		if retry.Wait(ctx) != nil {
			continue // to the release
		}
		if again { // a single failure may be the start of the API server
			l.log.Warn("renew Lease failed; the termination of pods may be delayed", "error", err)
		}
		l.applied(0, true)
	}
}

// write creates or renews the Lease. It does nothing before rules have been applied.
func (l *lease) write(ctx context.Context) error {
	l.mu.Lock()
	revision, ready := l.revision, l.ready
	l.mu.Unlock()
	if !ready {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaseWrite)
	defer cancel()
	if l.last == nil {
		created, err := l.leases.Create(ctx, l.fill(&coordinationv1.Lease{}, revision))
		if err == nil {
			l.last = created
			return nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		if l.last, err = l.leases.Get(ctx, l.name()); err != nil {
			l.last = nil
			return err
		}
	}
	updated, err := l.leases.Update(ctx, l.fill(l.last.DeepCopy(), revision))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		l.last = nil // read it before the next update
	}
	if err == nil {
		l.last = updated
	}
	return err
}

func (l *lease) name() string { return "kube-proxy-" + l.node }

func (l *lease) fill(lease *coordinationv1.Lease, revision uint64) *coordinationv1.Lease {
	now := metav1.NowMicro()
	seconds := int32(leaseDuration / time.Second)
	lease.Namespace, lease.Name = leaseNamespace, l.name()
	metav1.SetMetaDataLabel(&lease.ObjectMeta, labelComponent, "kube-proxy")
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, annotationApplied, strconv.FormatUint(revision, 10))
	lease.Spec.HolderIdentity = &l.node
	lease.Spec.LeaseDurationSeconds = &seconds
	lease.Spec.RenewTime = &now
	return lease
}

// release deletes the Lease if this process has written it.
func (l *lease) release(ctx context.Context) {
	if l.last == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaseReleaseTimeout)
	defer cancel()
	if err := l.leases.Delete(ctx, l.name(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		l.log.Warn("delete Lease failed; the termination of pods on other nodes may be delayed", "error", err)
	}
}
