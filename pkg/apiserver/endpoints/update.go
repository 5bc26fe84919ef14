package endpoints

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
)

// update replaces an object, or the part of it that a subresource owns.
func (c *call) update() error {
	f, err := wire.Negotiate(c.r, asObject())
	if err != nil {
		return err
	}
	o, err := c.updateOptions()
	if err != nil {
		return err
	}
	b, err := c.readBody()
	if err != nil {
		return err
	}
	sent, err := c.decodeObject(b, o.validation)
	if err != nil {
		return err
	}
	if err := c.checkName(sent); err != nil {
		return err
	}
	fresh := true
	o.createAlong = c.res.AllowCreateOnUpdate && c.sub == nil
	s, created, err := c.res.update(c.ctx, c.info.Namespace, c.info.Name, o, func(*present) (scheme.Object, error) {
		if fresh { // only one attempt may have the object itself: it is changed on the way
			fresh = false
			return sent, nil
		}
		again, err := c.decodeObject(b, metav1.FieldValidationIgnore)
		if err == nil {
			err = c.checkName(again)
		}
		return again, err
	})
	if err != nil {
		return err
	}
	if created {
		return c.respondStored(http.StatusCreated, f, s)
	}
	return c.respondStored(http.StatusOK, f, s)
}

// checkName compares the object's name and namespace with the URL's.
func (c *call) checkName(obj scheme.Object) error {
	switch obj.GetName() {
	case c.info.Name:
	case "":
		if c.sub == nil {
			return apierrors.NewBadRequest("the name of the object (" + c.info.Name + " based on URL) was undeterminable: name must be provided")
		}
		obj.SetName(c.info.Name)
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", obj.GetName(), c.info.Name))
	}
	return c.res.matchNamespace(obj, c.info.Namespace)
}

// update stores what change makes of the present state. created says that the
// object was not there and o allowed to create it; then change was called with
// nil.
func (r *resource) update(ctx context.Context, namespace, name string, o writeOptions, change func(*present) (scheme.Object, error)) (s *stored, created bool, err error) {
	for {
		s, err = r.mutate(ctx, r.key(namespace, name), name, o.dryRun, func(cur *present) (plan, error) {
			next, err := change(cur)
			if err != nil {
				return plan{}, err
			}
			return r.planUpdate(ctx, cur.obj, next, o)
		})
		if !o.createAlong || !apierrors.IsNotFound(err) {
			return s, false, err
		}
		if err := r.api.authorizeCreate(ctx); err != nil {
			return nil, false, err
		}
		obj, err := change(nil)
		if err != nil {
			return nil, false, err
		}
		if uid := obj.GetUID(); uid != "" {
			return nil, false, r.conflict(name, "Precondition failed: UID in precondition: %v, UID in object meta: ", uid)
		}
		obj.SetResourceVersion("")
		s, err = r.create(ctx, namespace, obj, o)
		if !apierrors.IsAlreadyExists(err) || ctx.Err() != nil {
			return s, true, err
		}
	}
}

// authorizeCreate is asked before a request for an update or a patch creates
// the object: that takes the verb create.
func (a *API) authorizeCreate(ctx context.Context) error {
	if a.MayCreate == nil {
		return apierrors.NewInternalError(errors.New("no authorizer provided, unable to authorize a create on update"))
	}
	return a.MayCreate(ctx)
}

// planUpdate takes an update through admission, preparation and validation.
// next is changed; old is shared and is not.
func (r *resource) planUpdate(ctx context.Context, old, next scheme.Object, o writeOptions) (p plan, err error) {
	if err := r.checkPreconditions(old, next); err != nil {
		return p, err
	}
	a := &admission.Attributes{
		Operation: admission.Update, Kind: r.Kind, Namespace: old.GetNamespace(), Name: old.GetName(),
		Object: next, Old: old, DryRun: o.dryRun, User: request.UserFrom(ctx),
	}
	if o.sub != nil {
		a.Subresource = o.sub.Name
	}
	if err := admission.Run(ctx, r.api.Admission.Mutate, a); err != nil {
		return p, err
	}
	carryOver(next, old)
	if err := r.prepareUpdate(ctx, next, old, o); err != nil {
		return p, err
	}
	if err := r.validateUpdate(next, old, o); err != nil {
		return p, err
	}
	r.addWarnings(ctx, next, old)
	if err := admission.Run(ctx, r.api.Admission.Validate, a); err != nil {
		return p, err
	}
	if !o.applied && (len(old.GetManagedFields()) > 0 || len(next.GetManagedFields()) > 0) {
		if err := r.api.managed.update(r, old, next, o); err != nil {
			return p, err
		}
	}
	gone, err := r.finished(next)
	if err != nil {
		return p, err
	}
	if !gone {
		p.next = next
		if p.undo, err = r.allocate(ctx, next, old, o.dryRun); err != nil {
			return p, err
		}
	}
	if r.Release != nil {
		p.settle = func(ctx context.Context) { r.Release(ctx, p.next, old) }
	}
	return p, nil
}

func (r *resource) prepareUpdate(ctx context.Context, next, old scheme.Object, o writeOptions) error {
	switch {
	case o.sub != nil && o.sub.View == nil:
		if o.sub.PreparePart == nil {
			return nil
		}
		return o.sub.PreparePart(ctx, next, old)
	case r.Prepare != nil:
		return r.Prepare(ctx, r.api, next, old)
	}
	return nil
}

// checkPreconditions compares what the client says it has changed with what is
// there.
func (r *resource) checkPreconditions(old, next scheme.Object) error {
	if uid := next.GetUID(); uid != "" && uid != old.GetUID() {
		return r.conflict(old.GetName(), "Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, old.GetUID())
	}
	switch next.GetResourceVersion() {
	case old.GetResourceVersion():
	case "", "0":
		if !r.AllowUnconditionalUpdate {
			return r.invalid(old.GetName(), field.ErrorList{field.Invalid(field.NewPath("metadata", "resourceVersion"), next.GetResourceVersion(), "must be specified for an update")})
		}
		next.SetResourceVersion(old.GetResourceVersion())
	default:
		return r.conflict(old.GetName(), optimisticLock)
	}
	return nil
}

// finished says that an object which is being deleted has nothing left to wait
// for: no finalizers, no grace period, nothing of the kind's own.
func (r *resource) finished(obj scheme.Object) (bool, error) {
	if obj.GetDeletionTimestamp() == nil || len(obj.GetFinalizers()) > 0 {
		return false, nil
	}
	if grace := obj.GetDeletionGracePeriodSeconds(); grace != nil && *grace > 0 {
		return false, nil
	}
	if r.BeforeDelete == nil {
		return true, nil
	}
	now := int64(0)
	keep, err := r.BeforeDelete(obj.DeepCopyObject().(scheme.Object), &metav1.DeleteOptions{GracePeriodSeconds: &now}, r.api.Now())
	return !keep, err
}
