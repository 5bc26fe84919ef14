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

// get answers with the cached encoding of one object, at least as fresh as the
// resourceVersion parameter requires.
func (c *call) get() error {
	f, err := wire.Negotiate(c.r, c.res.offer())
	if err != nil {
		return err
	}
	e, err := c.entry()
	if err == nil && !onlyMetadata(f) {
		e, err = c.res.seenOne(c.ctx, e)
	}
	if err != nil {
		return err
	}
	return c.respond(http.StatusOK, f, e)
}

// entry returns the cached object that the call names, or a 404.
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

// snapshot returns the objects of the resource at a revision not older than
// version: "" requires the newest revision, "0" accepts any. It blocks until the
// cache has the revision, or fails if that takes too long.
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

// parseVersion parses the resourceVersion of a request; "" is 0.
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

// tooLargeVersion returns the error for a resourceVersion that the store has not
// reached yet.
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

// readError translates an error of the cache or the store on a read to the API
// error that the client receives. It returns context errors and
// watchcache.ErrRemoved unchanged.
func readError(err error) error {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, watchcache.ErrRemoved):
		return err
	case errors.Is(err, storage.ErrCompacted):
		return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	}
	return apierrors.NewInternalError(err)
}
