package balancer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/backoff"
	"podium/pkg/client/addresslease"
)

// look is how often close reads a Lease that is being released.
const look = 100 * time.Millisecond

// closeAll closes Leases concurrently: if a holder is dead, closing takes a while.
func (b *Balancer) closeAll(ctx context.Context, leases map[netip.Addr]*coordinationv1.Lease) error {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	for a, l := range leases {
		wg.Go(func() {
			if err := b.close(ctx, l); err != nil {
				mu.Lock()
				errs = append(errs, fmt.Errorf("give up address %s: %w", a, err))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// close marks a Lease as closing, waits until its holder has released it or must have
// stopped announcing, and deletes it.
func (b *Balancer) close(ctx context.Context, l *coordinationv1.Lease) error {
	var seen addresslease.Watch
	for {
		seen.See(l)
		l = seen.Lease()
		var err error
		switch c, bad := addresslease.Parse(l); {
		case bad != nil:
			return bad
		case !c.Closing:
			l = l.DeepCopy()
			addresslease.Close(l)
			l, err = b.leases.Update(ctx, l)
		case !time.Now().Before(seen.Free()):
			err = b.leases.Delete(ctx, l.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion}})
			if err == nil {
				return nil
			}
		default:
			if err := backoff.Sleep(ctx, look); err != nil {
				return err
			}
			l, err = b.leases.Get(ctx, l.Name)
		}
		if apierrors.IsConflict(err) {
			l, err = b.leases.Get(ctx, seen.Lease().Name)
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
