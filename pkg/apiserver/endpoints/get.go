package endpoints

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/wire"
	"podium/pkg/storage"
	"podium/pkg/storage/watchcache"
)

// get answers with one object: the cached encoding, as fresh as
// resourceVersion asks.
func (c *call) get() error {
	f, err := wire.Negotiate(c.r, asObject())
	if err != nil {
		return err
	}
	e, err := c.entry()
	if err != nil {
		return err
	}
	return c.respond(http.StatusOK, f, e.Object, e)
}

// entry is the cached object that the call names.
func (c *call) entry() (*watchcache.Entry, error) {
	version := ""
	if c.r.URL.RawQuery != "" {
		version = c.query().Get("resourceVersion")
	}
	snap, err := c.res.snapshot(c.ctx, version)
	if err != nil {
		return nil, err
	}
	e := snap.Get(c.res.key(c.info.Namespace, c.info.Name))
	if e == nil {
		return nil, c.res.notFound(c.info.Name)
	}
	return e, nil
}

// snapshot is the resource not older than a resourceVersion: "" is now, "0"
// whatever is at hand.
func (r *resource) snapshot(ctx context.Context, version string) (*watchcache.Snapshot, error) {
	if version == "" {
		snap, err := r.cache.Latest(ctx)
		return snap, readError(err)
	}
	rev, err := parseVersion(version)
	if err != nil {
		return nil, err
	}
	snap, err := r.cache.AtLeast(ctx, rev)
	if errors.Is(err, storage.ErrFuture) {
		return nil, r.tooLargeVersion(ctx, rev)
	}
	return snap, readError(err)
}

// parseVersion reads a resourceVersion that a client sent.
func parseVersion(version string) (int64, error) {
	if version == "" {
		return 0, nil
	}
	rev, err := strconv.ParseUint(version, 10, 63)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("resourceVersion: Invalid value: %q: %v", version, err))
	}
	return int64(rev), nil
}

// tooLargeVersion is the error of a resourceVersion that has not come yet.
func (r *resource) tooLargeVersion(ctx context.Context, rev int64) error {
	current := int64(0)
	if snap, err := r.cache.AtLeast(ctx, 0); err == nil {
		current = snap.Revision
	}
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", rev, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}

// readError is what a client sees when the cache or the store cannot be read.
func readError(err error) error {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, storage.ErrCompacted):
		return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	}
	return apierrors.NewInternalError(err)
}
