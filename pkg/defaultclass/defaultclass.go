// Package defaultclass chooses the class of an object that names none.
package defaultclass

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Storage returns the annotations that mark a StorageClass as the default.
func Storage() []string {
	return []string{"storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"}
}

// Marked reports whether one of the annotations marks a class as the default.
func Marked(class metav1.Object, annotations []string) bool {
	for _, a := range annotations {
		if class.GetAnnotations()[a] == "true" {
			return true
		}
	}
	return false
}

// Newest returns the newest class that one of the annotations marks, the first by name among
// those of the same second; the zero T if there is none.
func Newest[T metav1.Object](classes []T, annotations []string) (found T) {
	none := true
	for _, class := range classes {
		if Marked(class, annotations) && (none || before(class, found)) {
			found, none = class, false
		}
	}
	return found
}

// before reports whether a is preferred to b.
func before(a, b metav1.Object) bool {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if at.Unix() == bt.Unix() {
		return a.GetName() < b.GetName()
	}
	return at.After(bt.Time)
}
