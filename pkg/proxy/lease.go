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

	"podium/pkg/client"
)

// The Lease by which kubelets learn that a terminating pod is out of rotation
// here, so that they may end it.
const (
	leaseNamespace    = metav1.NamespaceSystem
	leaseDuration     = 40 * time.Second
	leaseRenewal      = 10 * time.Second
	leaseWrite        = 5 * time.Second // one write's bound
	leaseGoodbye      = time.Second     // that of the last
	labelComponent    = "podium.dev/component"
	annotationApplied = "podium.dev/endpoints-applied"
)

// lease says in the cluster up to which EndpointSlice revision this node's
// rules are. It is renewed in time, and at once when somebody waits for it.
type lease struct {
	leases client.Resource[*coordinationv1.Lease]
	node   string
	log    *slog.Logger

	mu       sync.Mutex
	revision uint64
	ready    bool // rules were applied at least once
	wake     chan struct{}

	last *coordinationv1.Lease // as the server has it; run's own
}

func newLease(c *client.Client, node string, log *slog.Logger) *lease {
	return &lease{
		leases: client.For[*coordinationv1.Lease](c).In(leaseNamespace),
		node:   node, log: log, wake: make(chan struct{}, 1),
	}
}

// applied notes that the rules reflect all slices up to the revision. urgent:
// an endpoint began to terminate, its kubelet waits.
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

// run writes until ctx ends, then takes the Lease away: nobody shall wait for
// a proxy that was stopped.
func (l *lease) run(ctx context.Context, renew time.Duration) error {
	t := time.NewTicker(renew)
	defer t.Stop()
	retry := firstRetry
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
			retry = firstRetry
			continue
		}
		if !pause(ctx, retry) {
			continue // to the release
		}
		if retry > firstRetry { // once may be the API server's start
			l.log.Warn("the Lease was not renewed; pods may wait before they end", "error", err)
		}
		retry = min(2*retry, leaseRenewal)
		l.applied(0, true)
	}
}

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
		l.last = nil // read it anew at the next try
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

func (l *lease) release(ctx context.Context) {
	if l.last == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaseGoodbye)
	defer cancel()
	if err := l.leases.Delete(ctx, l.name(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		l.log.Warn("the Lease was not removed; pods on other nodes may wait before they end", "error", err)
	}
}
