package loop

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/scheme"
)

// Changes is what a wake rule listens to: an informer.
type Changes[T scheme.Object] interface {
	OnChange(func(old, new T))
}

// WakeOn has the keys that a changed object names reconciled: those it names
// as it was and those it names as it is. To be called before the informer runs.
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

// Self names the object itself.
func Self[T scheme.Object](obj T) []Key { return []Key{KeyOf(obj)} }

// Owner names the object's controller, if it is of this kind.
func Owner[T scheme.Object](kind string) func(T) []Key {
	return func(obj T) []Key {
		ref := metav1.GetControllerOfNoCopy(obj)
		if ref == nil || ref.Kind != kind {
			return nil
		}
		return []Key{{Namespace: obj.GetNamespace(), Name: ref.Name}}
	}
}

// Named names the object of the same name in no namespace: a pod's node, say.
func Named[T scheme.Object](name func(T) string) func(T) []Key {
	return func(obj T) []Key {
		if n := name(obj); n != "" {
			return []Key{{Name: n}}
		}
		return nil
	}
}

// KeyOf is an object's key.
func KeyOf(obj metav1.Object) Key {
	return Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}
