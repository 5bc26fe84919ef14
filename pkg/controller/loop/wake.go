package loop

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/scheme"
)

// Changes is a source of changes: an informer.
type Changes[T scheme.Object] interface {
	OnChange(func(old, new T))
}

// WakeOn enqueues the keys for a changed object: those of its old and of its new state.
// Call it before the informer runs.
func WakeOn[T scheme.Object](l *Loop, changes Changes[T], keys func(T) []Key) {
	changes.OnChange(func(old, new T) {
		var none T
		if any(old) != any(none) {
			l.Wake(keys(old)...)
		}
		if any(new) != any(none) {
			l.Wake(keys(new)...)
		}
	})
}

// Self returns the key of the object itself.
func Self[T scheme.Object](obj T) []Key { return []Key{KeyOf(obj)} }

// Owner returns the key of the object's controller if it is of this kind.
func Owner[T scheme.Object](kind string) func(T) []Key {
	return func(obj T) []Key {
		ref := metav1.GetControllerOfNoCopy(obj)
		if ref == nil || ref.Kind != kind {
			return nil
		}
		return []Key{{Namespace: obj.GetNamespace(), Name: ref.Name}}
	}
}

// Named returns the key of a cluster-scoped object by name: a pod's node, say.
func Named[T scheme.Object](name func(T) string) func(T) []Key {
	return func(obj T) []Key {
		if n := name(obj); n != "" {
			return []Key{{Name: n}}
		}
		return nil
	}
}

// KeyOf returns an object's key.
func KeyOf(obj metav1.Object) Key {
	return Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}
