package endpoints

//lint:file-ignore SA1019 OrphanDependents is deprecated, and old clients send it.

import (
	"context"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
)

// delete deletes an object. If finalizers or a grace period must pass first, it
// only sets the deletion timestamp.
func (c *call) delete() error {
	f, err := wire.Negotiate(c.r, c.res.offer())
	if err != nil {
		return err
	}
	opts, err := c.deleteOptions()
	if err != nil {
		return err
	}
	s, gone, err := c.res.delete(c.ctx, c.info.Namespace, c.info.Name, opts)
	if err != nil {
		return err
	}
	if !gone {
		shown := s
		if !onlyMetadata(f) {
			shown, err = c.res.seenStored(c.ctx, s)
		}
		if err == nil {
			return c.respond(deletedCode(opts, gone), f, shown)
		}
		c.res.api.Log.Warn("convert a deleted object failed", "resource", c.res.group().String(), "err", err)
	}
	if c.res.ReturnDeleted {
		return c.respond(http.StatusOK, f, s)
	}
	return wire.WriteStatus(c.w, c.r, f, metav1.Status{
		Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{
			Name: c.info.Name, Group: c.res.Group, Kind: c.res.Resource, UID: s.obj.GetUID(),
		},
	})
}

// deletedCode returns 202 if the client requested foreground deletion with the
// deprecated orphanDependents=false and the object still exists, else 200.
func deletedCode(opts *metav1.DeleteOptions, gone bool) int {
	if orphan := opts.OrphanDependents; !gone && orphan != nil && !*orphan {
		return http.StatusAccepted
	}
	return http.StatusOK
}

// deleteOptions reads the options from the body or, if that is empty, from the
// query.
func (c *call) deleteOptions() (*metav1.DeleteOptions, error) {
	opts := &metav1.DeleteOptions{}
	b, err := c.readBody()
	if err != nil {
		return nil, err
	}
	if len(b.data) > 0 {
		err = c.decodeDeleteOptions(b, opts)
	} else {
		err = queryDeleteOptions(c, opts)
	}
	if err != nil {
		return nil, err
	}
	if c.res.OrphanWarning != "" && opts.PropagationPolicy == nil && opts.OrphanDependents == nil {
		request.Warn(c.ctx, c.res.OrphanWarning)
	}
	return opts, invalidOptions("DeleteOptions", metavalidation.ValidateDeleteOptions(opts))
}

// decodeDeleteOptions accepts DeleteOptions of any group: they share one type.
func (c *call) decodeDeleteOptions(b body, opts *metav1.DeleteOptions) error {
	want := schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}
	named, _, err := decodeBody(b, metav1.FieldValidationIgnore, want, opts)
	if err == nil && named != want && b.media == scheme.Protobuf {
		var raw []byte
		if _, raw, err = scheme.OpenProto(b.data); err == nil {
			err = unmarshalProto(raw, opts)
		}
	}
	if err == nil && named.Kind != want.Kind {
		err = checkKind(schema.GroupVersionKind{Version: want.Version, Kind: named.Kind}, want)
	}
	if err != nil {
		if _, ok := err.(apierrors.APIStatus); ok {
			return err
		}
		return badBody(b.data, named, want, err)
	}
	return nil
}

// queryDeleteOptions reads the options from the query of the request into opts.
func queryDeleteOptions(c *call, opts *metav1.DeleteOptions) error {
	q := c.query()
	opts.DryRun = q["dryRun"]
	if q.Get("gracePeriodSeconds") != "" {
		seconds, err := parseNumber(q, "gracePeriodSeconds")
		if err != nil {
			return err
		}
		opts.GracePeriodSeconds = &seconds
	}
	if policy := metav1.DeletionPropagation(q.Get("propagationPolicy")); policy != "" {
		opts.PropagationPolicy = &policy
	}
	if _, ok := q["orphanDependents"]; ok {
		orphan := request.Flag(q, "orphanDependents")
		opts.OrphanDependents = &orphan
	}
	return nil
}

// delete admits the deletion of an object and removes it.
func (v *version) delete(ctx context.Context, namespace, name string, opts *metav1.DeleteOptions) (s *stored, gone bool, err error) {
	return v.remove(ctx, namespace, name, opts, v.admitDelete)
}

// admitDelete asks admission about the deletion of old.
func (v *version) admitDelete(ctx context.Context, old scheme.Object, opts *metav1.DeleteOptions) error {
	return v.admit(ctx, &admission.Attributes{
		Operation: admission.Delete, Namespace: old.GetNamespace(), Name: old.GetName(), Old: old, Options: opts, DryRun: len(opts.DryRun) > 0,
		Forms: v.storedForms(ctx),
	}, nil)
}

// remove removes an object or sets its deletion timestamp; gone reports which. The
// returned object is the last state, or the present one if it still exists. An error of
// admit, which may be nil, keeps the object.
func (v *version) remove(
	ctx context.Context, namespace, name string, opts *metav1.DeleteOptions, admit func(context.Context, scheme.Object, *metav1.DeleteOptions) error,
) (s *stored, gone bool, err error) {
	s, err = v.asStored().mutate(ctx, v.key(namespace, name), name, len(opts.DryRun) > 0, func(cur *present) (plan, error) {
		if err := v.checkDeletePreconditions(cur.obj, opts.Preconditions); err != nil {
			return plan{}, err
		}
		if admit != nil {
			if err := admit(ctx, cur.obj, opts); err != nil {
				return plan{}, err
			}
		}
		p, err := v.planDelete(cur.obj, opts)
		gone = p.next == nil
		return p, err
	})
	return s, gone, err
}

// planDelete decides whether a delete removes old or marks it as deleted. It does
// not modify old.
func (v *version) planDelete(old scheme.Object, opts *metav1.DeleteOptions) (p plan, err error) {
	next := old.DeepCopyObject().(scheme.Object)
	setGarbageFinalizers(next, opts, v.OrphanByDefault)
	keep, now := false, v.api.Now()
	if v.BeforeDelete != nil {
		if keep, err = v.BeforeDelete(next, opts, now); err != nil {
			return p, err
		}
	}
	if !keep && len(next.GetFinalizers()) > 0 {
		keep = true
		markDeleted(next, now)
	}
	if keep {
		if old.GetDeletionTimestamp() == nil && next.GetDeletionTimestamp() != nil && old.GetGeneration() > 0 && next.GetGeneration() == old.GetGeneration() {
			next.SetGeneration(old.GetGeneration() + 1)
		}
		p.next = next
		return p, nil
	}
	if v.Release != nil {
		p.settle = func(ctx context.Context) { v.Release(ctx, nil, old) }
	}
	return p, nil
}

// markDeleted sets the deletion timestamp to now, unless an earlier one is set, and
// the grace period to 0. The object is removed with its last finalizer.
func markDeleted(obj scheme.Object, now time.Time) {
	if t := obj.GetDeletionTimestamp(); t == nil || t.After(now) {
		stamp := metav1.NewTime(now.Truncate(time.Second))
		obj.SetDeletionTimestamp(&stamp)
	}
	none := int64(0)
	obj.SetDeletionGracePeriodSeconds(&none)
}

// checkDeletePreconditions returns a conflict if the UID or the resourceVersion of
// old does not match pre, which may be nil.
func (r *resource) checkDeletePreconditions(old scheme.Object, pre *metav1.Preconditions) error {
	if pre == nil {
		return nil
	}
	if pre.UID != nil && *pre.UID != old.GetUID() {
		return r.conflict(old.GetName(), "the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *pre.UID, old.GetUID())
	}
	if pre.ResourceVersion != nil && *pre.ResourceVersion != old.GetResourceVersion() {
		return r.conflict(old.GetName(), "the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *pre.ResourceVersion, old.GetResourceVersion())
	}
	return nil
}

// setGarbageFinalizers sets the finalizer that tells the garbage collector how to
// handle the dependents: orphan, foreground, or no finalizer for background. The
// options take precedence over the finalizers of obj, and these over the default.
func setGarbageFinalizers(obj scheme.Object, opts *metav1.DeleteOptions, orphanByDefault bool) {
	have := obj.GetFinalizers()
	orphan := slices.Contains(have, metav1.FinalizerOrphanDependents)
	foreground := !orphan && slices.Contains(have, metav1.FinalizerDeleteDependents)
	switch {
	case opts.OrphanDependents != nil:
		orphan, foreground = *opts.OrphanDependents, false
	case opts.PropagationPolicy != nil:
		orphan = *opts.PropagationPolicy == metav1.DeletePropagationOrphan
		foreground = *opts.PropagationPolicy == metav1.DeletePropagationForeground
	case !foreground:
		orphan = orphan || orphanByDefault
	}
	var want []string
	for _, f := range have {
		if f != metav1.FinalizerOrphanDependents && f != metav1.FinalizerDeleteDependents {
			want = append(want, f)
		}
	}
	if orphan {
		want = append(want, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		want = append(want, metav1.FinalizerDeleteDependents)
	}
	if !slices.Equal(have, want) {
		obj.SetFinalizers(want)
	}
}
