package endpoints

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
	"podium/pkg/storage"
)

// create stores a new object.
func (c *call) create() error {
	f, err := wire.Negotiate(c.r, c.res.offer())
	if err != nil {
		return err
	}
	o, err := c.createOptions()
	if err != nil {
		return err
	}
	b, err := c.readBody()
	if err != nil {
		return err
	}
	obj, err := c.decodeObject(b, o.validation)
	if err != nil {
		return err
	}
	uniteOwners(c.ctx, obj, ownersRepeated)
	s, err := c.res.create(c.ctx, c.info.Namespace, obj, o)
	if err != nil {
		return err
	}
	return c.respond(http.StatusCreated, f, s)
}

// generateAttempts is the maximum number of generated names to try.
const generateAttempts = 8

// create stores obj, which it may change. As upstream, mutating plugins see neither a
// generated name nor system metadata. If a generated name is taken, create generates
// another one, and does not ask them again.
func (r *resource) create(ctx context.Context, namespace string, obj scheme.Object, o writeOptions) (*stored, error) {
	if err := r.matchNamespace(obj, namespace); err != nil {
		return nil, err
	}
	a, err := r.mutateNew(ctx, obj, o)
	if err != nil {
		return nil, err
	}
	if obj.GetName() != "" || obj.GetGenerateName() == "" {
		return r.createOnce(ctx, a, obj, o)
	}
	for range generateAttempts {
		try := obj.DeepCopyObject().(scheme.Object)
		name, err := r.api.generateName(obj.GetGenerateName())
		if err != nil {
			return nil, err
		}
		try.SetName(name)
		s, err := r.createOnce(ctx, a, try, o)
		if !apierrors.IsAlreadyExists(err) {
			return s, err
		}
	}
	return nil, apierrors.NewGenerateNameConflict(r.group(), obj.GetGenerateName(), 1)
}

// mutateNew runs the mutating plugins on a new object. It returns the attributes that
// they saw.
func (r *resource) mutateNew(ctx context.Context, obj scheme.Object, o writeOptions) (*admission.Attributes, error) {
	clearSystemMetadata(obj)
	if _, err := r.track(nil, obj, o); err != nil {
		return nil, err
	}
	restore := guard(ctx, obj)
	a := &admission.Attributes{
		Operation: admission.Create, Namespace: obj.GetNamespace(), Name: obj.GetName(), Object: obj, Options: o.options, DryRun: o.dryRun,
		Forms: r.formsOf(o),
	}
	r.describe(ctx, a)
	if err := r.api.Admission.Mutate(ctx, a); err != nil {
		return nil, err
	}
	restore()
	uniteOwners(ctx, obj, ownersRepeatedByPlugin)
	return a, nil
}

// createOnce prepares, validates and stores a mutated object under its present name. It
// returns allocations of the kind if a later step fails. As upstream, only a dry run
// accepts a resourceVersion, and keeps it.
func (r *resource) createOnce(ctx context.Context, a *admission.Attributes, obj scheme.Object, o writeOptions) (s *stored, err error) {
	if err := r.validateMutated(ctx, *a, obj, o); err != nil {
		return nil, err
	}
	if n, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64); err == nil && n != 0 && !o.dryRun {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	undo, err := r.allocate(ctx, obj, nil, o.dryRun)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && undo != nil {
			undo(context.WithoutCancel(ctx))
		}
	}()
	s, err = r.insert(ctx, obj, o.dryRun)
	if apierrors.IsRequestEntityTooLargeError(err) && !o.applied && len(obj.GetManagedFields()) > 0 {
		obj.SetManagedFields(nil) // as upstream: an object may take all the space itself
		return r.insert(ctx, obj, o.dryRun)
	}
	return s, err
}

// validateMutated prepares a mutated object and validates it, by the rules of its kind
// and by the validating plugins. a is a copy of what the mutating plugins saw.
func (r *resource) validateMutated(ctx context.Context, a admission.Attributes, obj scheme.Object, o writeOptions) error {
	if err := r.api.setSystemMetadata(obj); err != nil {
		return err
	}
	if err := r.prepareNew(ctx, obj, o); err != nil {
		return err
	}
	a.Object = obj
	if a.Name == "" {
		a.Name = obj.GetName()
	}
	return r.api.Admission.Validate(ctx, &a)
}

// prepareNew prepares and validates a new object.
func (r *resource) prepareNew(ctx context.Context, obj scheme.Object, o writeOptions) error {
	if prepare := o.rules(r).Prepare; prepare != nil {
		if err := prepare(ctx, r.api, obj, nil); err != nil {
			return err
		}
	}
	if err := r.validateNew(obj, o); err != nil {
		return err
	}
	r.addWarnings(ctx, obj, nil, o)
	return nil
}

// insert writes an object to the store and sets its resourceVersion. A dry run only
// checks that the key is free.
func (r *resource) insert(ctx context.Context, obj scheme.Object, dryRun bool) (*stored, error) {
	value, bare, err := r.encode(ctx, obj)
	if err != nil {
		return nil, err
	}
	key := r.key(obj.GetNamespace(), obj.GetName())
	if dryRun {
		_, err := r.api.Store.Get(ctx, key)
		if err == nil {
			return nil, apierrors.NewAlreadyExists(r.group(), obj.GetName())
		} else if !errors.Is(err, storage.ErrNotFound) {
			return nil, r.writeError(obj.GetName(), err)
		}
		return &stored{obj: obj, bare: bare}, nil
	}
	if err := request.Spend(ctx, len(value)); err != nil {
		return nil, err
	}
	rev, err := r.api.Store.Create(ctx, key, value)
	if err != nil {
		return nil, r.writeError(obj.GetName(), err)
	}
	obj.SetResourceVersion(strconv.FormatInt(rev, 10))
	r.settle(ctx, rev)
	return &stored{obj: obj, bare: bare}, nil
}

func (r *resource) addWarnings(ctx context.Context, new, old scheme.Object, o writeOptions) {
	if warnings := o.rules(r).Warnings; warnings != nil {
		for _, text := range warnings(new, old) {
			request.Warn(ctx, text)
		}
	}
}

// allocate calls the Allocate rule of the kind. undo is nil if there is nothing to
// release.
func (r *resource) allocate(ctx context.Context, new, old scheme.Object, dryRun bool) (undo func(context.Context), err error) {
	if r.Allocate == nil {
		return nil, nil
	}
	return r.Allocate(ctx, new, old, dryRun)
}

// writeError translates an error of the store to the API error that the client
// receives. Other errors are returned unchanged.
func (r *resource) writeError(name string, err error) error {
	switch {
	case errors.Is(err, storage.ErrExists):
		return apierrors.NewAlreadyExists(r.group(), name)
	case errors.Is(err, storage.ErrNotFound):
		return r.notFound(name)
	case errors.Is(err, storage.ErrTooLarge):
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("%s %q does not fit into the store: limit is %d", r.group(), name, storage.MaxValue))
	}
	return err
}
