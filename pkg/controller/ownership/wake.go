package ownership

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"podium/pkg/controller/loop"
	"podium/pkg/scheme"
)

// Owners are the owners that may own the objects of a loop.
type Owners[O scheme.Object] struct {
	Kind     string
	In       func(namespace string) []O
	Selector func(O) *metav1.LabelSelector
}

// WakeOwners enqueues, for each change of an object, its controller, before and after the
// change. A change that may concern others of an object without a controller enqueues the
// owners in its namespace whose selector matches it. Call it before the informer runs.
func WakeOwners[O, T scheme.Object](l *loop.Loop, objects loop.Changes[T], owners Owners[O]) {
	loop.WakeOn(l, objects, loop.Owner[T](owners.Kind))
	objects.OnChange(func(old, new T) {
		if obj, ok := orphan(old, new); ok {
			l.Wake(owners.matching(obj)...)
		}
	})
}

// orphan returns the object of a change if it has no controller and owners need to look at
// it: it is new, or its labels or its controller have changed, so that one may adopt it; or
// it is gone, and one may have waited for its name. Most changes, those of the status, are
// none of these.
func orphan[T scheme.Object](old, new T) (T, bool) {
	var none T
	switch {
	case any(new) == any(none):
		return old, metav1.GetControllerOfNoCopy(old) == nil
	case metav1.GetControllerOfNoCopy(new) != nil || new.GetDeletionTimestamp() != nil:
		return none, false
	case any(old) == any(none):
		return new, true
	}
	return new, metav1.GetControllerOfNoCopy(old) != nil || !maps.Equal(old.GetLabels(), new.GetLabels())
}

// matching returns the keys of the owners whose selector matches obj. Objects without labels
// are not adopted.
func (o Owners[O]) matching(obj metav1.Object) (keys []loop.Key) {
	if len(obj.GetLabels()) == 0 {
		return nil
	}
	for _, owner := range o.In(obj.GetNamespace()) {
		if s, err := metav1.LabelSelectorAsSelector(o.Selector(owner)); err == nil && s.Matches(labels.Set(obj.GetLabels())) {
			keys = append(keys, loop.KeyOf(owner))
		}
	}
	return keys
}
