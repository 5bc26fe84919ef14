package history

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/controller/ownership"
	"podium/pkg/scheme"
)

// History keeps the revisions of owners of type O. An owner's key is not reconciled again
// until the informer shows the changes.
type History[O scheme.Object] struct {
	Informer  *informer.Informer[*appsv1.ControllerRevision]
	owned     informers.Owned[*appsv1.ControllerRevision]
	adopter   ownership.Adopter[O, *appsv1.ControllerRevision]
	writer    controller.Writer[*appsv1.ControllerRevision]
	kind      schema.GroupVersionKind
	hashLabel string
}

// New returns the history of the controller that l belongs to. hashLabel is the label of
// revisions for the hash of their data. The loop must wait for the ControllerRevision
// informer.
func New[O scheme.Object](c controller.Context, l *loop.Loop, hashLabel string) History[O] {
	i := informers.For[*appsv1.ControllerRevision](c.Informers)
	w := controller.NewWriter(c, l, i)
	return History[O]{
		Informer: i, owned: informers.ByController[*appsv1.ControllerRevision](c.Informers),
		adopter: ownership.NewAdopter[O](c, w), writer: w,
		kind: scheme.KindOf[O](c.Client.Scheme()).GroupVersionKind, hashLabel: hashLabel,
	}
}

// Source is what a revision is made of.
type Source struct {
	Template   *corev1.PodTemplateSpec
	Selector   labels.Selector // of the orphans to adopt
	Collisions *int32          // status.collisionCount
}

// Of returns the revisions that the owner controls, oldest first.
func (h History[O]) Of(owner O) []*appsv1.ControllerRevision {
	all := slices.Clone(h.owned.By(owner.GetUID()))
	slices.SortFunc(all, oldestFirst)
	return all
}

// Sync adopts matching orphans and makes the revision of the template the newest one: it
// creates the revision, or gives the existing one the next number. It returns the owner's
// revisions, oldest first, the last one being that of the template, and the collision count
// for the owner's status. It must not be called for an owner that is being deleted.
func (h History[O]) Sync(ctx context.Context, owner O, s Source) ([]*appsv1.ControllerRevision, *int32, error) {
	claims := ownership.Claim(owner, s.Selector, nil, h.owned.Orphans(owner.GetNamespace()))
	all := append(h.Of(owner), claims.Adopt...)
	if err := h.adopter.Adopt(ctx, owner, claims.Adopt); err != nil {
		return nil, s.Collisions, err
	}
	slices.SortFunc(all, oldestFirst)
	current := find(all, s.Template)
	switch {
	case current == nil:
		created, collisions, err := h.create(ctx, owner, s, next(all))
		return append(all, created), collisions, err
	case current == all[len(all)-1]:
		return all, s.Collisions, nil
	}
	newest, err := h.renumber(ctx, owner, current, next(all))
	all = append(slices.DeleteFunc(all, func(r *appsv1.ControllerRevision) bool { return r == current }), newest)
	return all, s.Collisions, err
}

// renumber gives a revision a new number.
func (h History[O]) renumber(ctx context.Context, owner O, r *appsv1.ControllerRevision, number int64) (*appsv1.ControllerRevision, error) {
	got, err := h.writer.Patch(ctx, loop.KeyOf(owner), r, types.MergePatchType, map[string]any{"revision": number})
	if err == nil && got == nil {
		err = fmt.Errorf("renumber controller revision %s: it no longer exists", r.Name)
	}
	return got, err
}

// create creates the revision of the template. Its name depends on the template, so that a
// retry finds the revision of the first attempt. If another revision has the name, the
// collision count changes it.
func (h History[O]) create(ctx context.Context, owner O, s Source, number int64) (*appsv1.ControllerRevision, *int32, error) {
	for {
		r := revisionOf(owner, s, h.hashLabel, number)
		r.OwnerReferences = []metav1.OwnerReference{ownership.Reference(owner, h.kind)}
		got, err := h.writer.Create(ctx, loop.KeyOf(owner), r)
		if err == nil {
			return got, s.Collisions, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, s.Collisions, fmt.Errorf("create controller revision %s: %w", r.Name, err)
		}
		live, err := h.writer.Get(ctx, owner.GetNamespace(), r.Name)
		switch {
		case err != nil:
			return nil, s.Collisions, fmt.Errorf("get existing controller revision: %w", err)
		case h.reusable(owner, s, live):
			h.writer.Wrote(loop.KeyOf(owner), live)
			return nil, s.Collisions, fmt.Errorf("controller revision %s exists already: wait for the informer", r.Name)
		}
		s.Collisions = new(ptr.Deref(s.Collisions, 0) + 1)
	}
}

// reusable reports whether an existing revision is, or is about to be, the owner's revision
// of the template.
func (h History[O]) reusable(owner O, s Source, live *appsv1.ControllerRevision) bool {
	mine := metav1.IsControlledBy(live, owner) ||
		metav1.GetControllerOfNoCopy(live) == nil && s.Selector.Matches(labels.Set(live.Labels))
	return mine && holds(live, s.Template)
}

// Truncate deletes the oldest of the owner's revisions, so that limit of those that are not
// live remain; all, if limit is negative. all is sorted as Sync returns it, live holds names.
func (h History[O]) Truncate(ctx context.Context, owner O, all []*appsv1.ControllerRevision, live sets.Set[string], limit int32) error {
	for _, r := range excess(all, live, limit) {
		if _, err := h.writer.Delete(ctx, loop.KeyOf(owner), r, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}
