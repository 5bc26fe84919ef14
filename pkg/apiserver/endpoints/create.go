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
	f, err := wire.Negotiate(c.r, asObject())
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
	s, err := c.res.create(c.ctx, c.info.Namespace, obj, o)
	if err != nil {
		return err
	}
	return c.respondStored(http.StatusCreated, f, s)
}

// generateAttempts is how many names are drawn before giving up.
const generateAttempts = 8

// create stores obj, which it may change. If a generated name is
// taken, it draws another. As upstream, only a dry run accepts a
// resourceVersion, and keeps it.
func (r *resource) create(ctx context.Context, namespace string, obj scheme.Object, o writeOptions) (*stored, error) {
	if err := r.matchNamespace(obj, namespace); err != nil {
		return nil, err
	}
	if obj.GetName() != "" || obj.GetGenerateName() == "" {
		return r.createOnce(ctx, obj, o)
	}
	for range generateAttempts {
		try := obj.DeepCopyObject().(scheme.Object)
		name, err := r.api.generateName(obj.GetGenerateName())
		if err != nil {
			return nil, err
		}
		try.SetName(name)
		s, err := r.createOnce(ctx, try, o)
		if !apierrors.IsAlreadyExists(err) {
			return s, err
		}
	}
	return nil, apierrors.NewGenerateNameConflict(r.group(), obj.GetGenerateName(), 1)
}

func (r *resource) createOnce(ctx context.Context, obj scheme.Object, o writeOptions) (s *stored, err error) {
	a := &admission.Attributes{
		Operation: admission.Create, Kind: r.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName(),
		Object: obj, DryRun: o.dryRun, User: request.UserFrom(ctx),
	}
	if err := r.api.newborn(obj); err != nil {
		return nil, err
	}
	if err := admission.Run(ctx, r.api.Admission.Mutate, a); err != nil {
		return nil, err
	}
	if r.Prepare != nil {
		if err := r.Prepare(ctx, r.api, obj, nil); err != nil {
			return nil, err
		}
	}
	if err := r.validateNew(obj); err != nil {
		return nil, err
	}
	r.addWarnings(ctx, obj, nil)
	if err := admission.Run(ctx, r.api.Admission.Validate, a); err != nil {
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
	if !o.applied && len(obj.GetManagedFields()) > 0 {
		if err := r.api.managed.update(r, r.New(), obj, o); err != nil {
			return nil, err
		}
	}
	return r.insert(ctx, obj, o.dryRun)
}

// insert puts a finished object into the store.
func (r *resource) insert(ctx context.Context, obj scheme.Object, dryRun bool) (*stored, error) {
	value, bare, err := r.encode(obj)
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

func (r *resource) addWarnings(ctx context.Context, new, old scheme.Object) {
	if r.Warnings != nil {
		for _, text := range r.Warnings(new, old) {
			request.Warn(ctx, text)
		}
	}
}

func (r *resource) allocate(ctx context.Context, new, old scheme.Object, dryRun bool) (undo func(context.Context), err error) {
	if r.Allocate == nil {
		return nil, nil
	}
	return r.Allocate(ctx, new, old, dryRun)
}

// writeError is what a client sees of an error of the store.
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
