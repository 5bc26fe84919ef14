package endpoints

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"golang.org/x/sync/errgroup"

	"podium/pkg/apiserver/wire"
)

// deleteWorkers is how many objects of a collection are deleted at a time.
const deleteWorkers = 8

// deleteCollection deletes every object that the selectors choose, each as
// delete does, and answers with the list of them.
func (c *call) deleteCollection() error {
	f, err := wire.Negotiate(c.r, wire.Offer{As: []string{wire.Table, wire.PartialObjectMetadataList}})
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
	p, err := c.res.page(c.ctx, c.info.Namespace, lo)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(c.ctx)
	g.SetLimit(deleteWorkers)
	for _, e := range p.entries {
		g.Go(func() error {
			_, _, err := c.res.delete(ctx, e.Fields["metadata.namespace"], e.Fields["metadata.name"], opts)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return c.respondPage(f, p)
}
