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

// delete removes an object, or marks it as going away when something must
// happen first.
func (c *call) delete() error {
	f, err := wire.Negotiate(c.r, asObject())
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
		return c.respondStored(deletedCode(opts, gone), f, s)
	}
	if c.res.ReturnDeleted {
		return c.respondStored(http.StatusOK, f, s)
	}
	return wire.WriteStatus(c.w, c.r, f, metav1.Status{
		Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{
			Name: c.info.Name, Group: c.res.Group, Kind: c.res.Resource, UID: s.obj.GetUID(),
		},
	})
}

// deletedCode is 202 when the client asked, in the old way, for the dependents
// to go first and the object is therefore still there.
func deletedCode(opts *metav1.DeleteOptions, gone bool) int {
	if orphan := opts.OrphanDependents; !gone && orphan != nil && !*orphan {
		return http.StatusAccepted
	}
	return http.StatusOK
}

// deleteOptions come in the body or, if that is empty, in the query.
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
	return opts, invalidOptions("DeleteOptions", metavalidation.ValidateDeleteOptions(opts))
}

// decodeDeleteOptions accepts DeleteOptions of any group: all are one type.
func (c *call) decodeDeleteOptions(b body, opts *metav1.DeleteOptions) error {
	want := schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}
	named, _, err := decodeBody(c.res.api.Scheme, b, metav1.FieldValidationIgnore, want, opts)
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

// delete removes the object or marks it; gone says which. The object is its
// last, or its present, state.
func (r *resource) delete(ctx context.Context, namespace, name string, opts *metav1.DeleteOptions) (s *stored, gone bool, err error) {
	s, err = r.mutate(ctx, r.key(namespace, name), name, len(opts.DryRun) > 0, func(cur *present) (plan, error) {
		p, err := r.planDelete(ctx, cur.obj, opts)
		gone = p.next == nil
		return p, err
	})
	return s, gone, err
}

func (r *resource) planDelete(ctx context.Context, old scheme.Object, opts *metav1.DeleteOptions) (p plan, err error) {
	if err := r.checkDeletePreconditions(old, opts.Preconditions); err != nil {
		return p, err
	}
	a := &admission.Attributes{
		Operation: admission.Delete, Kind: r.Kind, Namespace: old.GetNamespace(), Name: old.GetName(),
		Old: old, DryRun: len(opts.DryRun) > 0, User: request.UserFrom(ctx),
	}
	for _, rules := range [][]admission.Func{r.api.Admission.Mutate, r.api.Admission.Validate} {
		if err := admission.Run(ctx, rules, a); err != nil {
			return p, err
		}
	}
	next := old.DeepCopyObject().(scheme.Object)
	setGarbageFinalizers(next, opts)
	keep, now := false, r.api.Now()
	if r.BeforeDelete != nil {
		if keep, err = r.BeforeDelete(next, opts, now); err != nil {
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
	if r.Release != nil {
		p.settle = func(ctx context.Context) { r.Release(ctx, nil, old) }
	}
	return p, nil
}

// markDeleted says that the object is to go as soon as its finalizers are done.
func markDeleted(obj scheme.Object, now time.Time) {
	if t := obj.GetDeletionTimestamp(); t == nil || t.After(now) {
		stamp := metav1.NewTime(now.Truncate(time.Second))
		obj.SetDeletionTimestamp(&stamp)
	}
	none := int64(0)
	obj.SetDeletionGracePeriodSeconds(&none)
}

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

// setGarbageFinalizers tells the garbage collector, by the finalizers it
// watches for, what is to become of the dependents.
func setGarbageFinalizers(obj scheme.Object, opts *metav1.DeleteOptions) {
	have := obj.GetFinalizers()
	orphan := slices.Contains(have, metav1.FinalizerOrphanDependents)
	foreground := !orphan && slices.Contains(have, metav1.FinalizerDeleteDependents)
	switch {
	case opts.OrphanDependents != nil:
		orphan, foreground = *opts.OrphanDependents, false
	case opts.PropagationPolicy != nil:
		orphan = *opts.PropagationPolicy == metav1.DeletePropagationOrphan
		foreground = *opts.PropagationPolicy == metav1.DeletePropagationForeground
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
