package endpoints

import (
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/wire"
)

// deleteWorkers is the number of concurrent deletes in one delete of a collection.
const deleteWorkers = 8

// deleteCollection deletes every object that matches the selectors, each as delete
// does, and answers with the list of them. The deletes run concurrently; the first
// error cancels the rest.
func (c *call) deleteCollection() error {
	f, err := wire.Negotiate(c.r, c.res.listOffer())
	if err != nil {
		return err
	}
	lo, err := c.listOptions(false)
	if err != nil {
		return err
	}
	opts, err := c.deleteOptions()
	if err != nil {
		return err
	}
	from := c.res.resource
	if !lo.selective() {
		from = from.asStored()
	}
	p, err := from.page(c.ctx, c.info.Namespace, lo)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(c.ctx)
	g.SetLimit(deleteWorkers)
	for _, e := range p.entries {
		g.Go(func() error {
			_, _, err := c.res.delete(ctx, e.Fields.Get("metadata.namespace"), e.Fields.Get("metadata.name"), opts)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if from != c.res.resource && !onlyMetadata(f) {
		if p.entries, err = c.res.seen(c.ctx, p.entries); err != nil {
			c.res.api.Log.Warn("convert deleted objects failed", "resource", c.res.group().String(), "err", err)
			return wire.WriteStatus(c.w, c.r, f, metav1.Status{Status: metav1.StatusSuccess})
		}
	}
	return c.respondPage(f, p)
}
