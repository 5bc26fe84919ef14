package defaultclass

import (
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNewest(t *testing.T) {
	class := func(name string, at int64, annotation, value string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{
			Name: name, CreationTimestamp: metav1.NewTime(time.Unix(at, 0)), Annotations: map[string]string{annotation: value},
		}}
	}
	const marker, beta = "storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"
	tests := map[string]struct {
		reason  string
		classes []*storagev1.StorageClass
		want    string
	}{
		"None":   {"no class is marked", []*storagev1.StorageClass{class("a", 1, "x", "true"), class("b", 1, marker, "false")}, ""},
		"Marked": {"either annotation marks it", []*storagev1.StorageClass{class("a", 2, "x", ""), class("b", 1, beta, "true")}, "b"},
		"Newest": {"the newest of several", []*storagev1.StorageClass{class("a", 1, marker, "true"), class("b", 2, marker, "true")}, "b"},
		"Tie":    {"the first by name of the same age", []*storagev1.StorageClass{class("b", 1, marker, "true"), class("a", 1, marker, "true")}, "a"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := ""
			if found := Newest(tc.classes, Storage()); found != nil {
				got = found.Name
			}
			if got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
