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
	"podium/pkg/apiserver/managed"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
)

// update replaces an object, or the part of it that a subresource owns.
func (c *call) update() error {
	f, err := wire.Negotiate(c.r, c.res.offer())
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
	sent, err := c.decodeUpdate(b, o.validation)
	if err != nil {
		return err
	}
	fresh := true
	o.createAlong = c.res.AllowCreateOnUpdate && c.sub == nil
	s, created, err := c.res.update(c.ctx, c.info.Namespace, c.info.Name, o, func(*present) (scheme.Object, error) {
		if fresh { // the update modifies the object, so a second attempt decodes the body again
			fresh = false
			return sent, nil
		}
		return c.decodeUpdate(b, metav1.FieldValidationIgnore)
	})
	if err != nil {
		return err
	}
	if created {
		return c.respond(http.StatusCreated, f, s)
	}
	return c.respond(http.StatusOK, f, s)
}

// decodeUpdate decodes the successor of the object of the call.
func (c *call) decodeUpdate(b body, validation string) (scheme.Object, error) {
	obj, err := c.decodeObject(b, validation)
	if err != nil {
		return nil, err
	}
	uniteOwners(c.ctx, obj, ownersRepeated)
	return obj, c.checkName(obj)
}

// checkName returns a 400 if the name or namespace of the object differ from the
// URL. It fills in those that a subresource may omit.
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

// update stores the result of change, which gets the present state. If the object
// does not exist and o.createAlong is set, update authorizes a create, calls change
// with nil and creates the object; created then is true. change may run many times.
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

// authorizeCreate returns an error unless the user of ctx may create the object
// that an update or a patch is about to create.
func (a *API) authorizeCreate(ctx context.Context) error {
	if a.MayCreate == nil {
		return apierrors.NewInternalError(errors.New("no authorizer provided, unable to authorize a create on update"))
	}
	return a.MayCreate(ctx)
}

// planUpdate runs admission, preparation and validation of an update. It changes
// next; old is shared and is not modified.
func (r *resource) planUpdate(ctx context.Context, old, next scheme.Object, o writeOptions) (p plan, err error) {
	if err := r.checkPreconditions(old, next); err != nil {
		return p, err
	}
	times, err := r.track(old, next, o)
	if err != nil {
		return p, err
	}
	restore := guard(ctx, next)
	a := &admission.Attributes{
		Operation: admission.Update, Namespace: old.GetNamespace(), Name: old.GetName(), Object: next, Old: old, Options: o.options, DryRun: o.dryRun,
		Forms: r.formsOf(o),
	}
	if o.sub != nil {
		a.Subresource = o.sub.Name
	}
	prepare := func() error {
		restore()
		uniteOwners(ctx, next, ownersRepeatedByPlugin)
		return r.prepareUpdate(ctx, next, old, o)
	}
	if err := r.admit(ctx, a, prepare); err != nil {
		return p, err
	}
	if times && managed.Same(old, next) {
		setEntries(next, entriesOf(old)) // a write that changes nothing leaves the times, too
	}
	gone, err := r.finished(next)
	if err != nil {
		return p, err
	}
	if !gone {
		p.next, p.shrinks = next, !o.applied
		if p.undo, err = r.allocate(ctx, next, old, o.dryRun); err != nil {
			return p, err
		}
	}
	if r.Release != nil {
		p.settle = func(ctx context.Context) { r.Release(ctx, p.next, old) }
	}
	return p, nil
}

// prepareUpdate prepares and validates next as the successor of old.
func (r *resource) prepareUpdate(ctx context.Context, next, old scheme.Object, o writeOptions) (err error) {
	carryOver(next, old)
	switch {
	case o.sub != nil && o.sub.View == nil:
		if o.sub.PreparePart != nil {
			err = o.sub.PreparePart(ctx, next, old)
		}
	case o.rules(r).Prepare != nil:
		err = o.rules(r).Prepare(ctx, r.api, next, old)
	}
	if err != nil {
		return err
	}
	if err := r.validateUpdate(next, old, o); err != nil {
		return err
	}
	r.addWarnings(ctx, next, old, o)
	return nil
}

// checkPreconditions returns a conflict if the UID or the resourceVersion of next
// is set and differs from old's. Without a resourceVersion, it takes over old's if
// the kind allows unconditional updates.
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

// finished reports whether an object that is being deleted can be removed: it has
// no finalizers, no grace period, and the kind's BeforeDelete does not keep it.
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
