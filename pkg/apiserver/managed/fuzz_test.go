package managed_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/managed"
	"podium/pkg/scheme"
)

// FuzzSent sends managed fields with an update, and expects what upstream's field
// manager makes of them.
func FuzzSent(f *testing.F) {
	s := scheme.New()
	k := s.ByKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	types, own := typesOf(f, corev1.SchemeGroupVersion)
	theirs, typ := upstream(f, k, types), own.Type(k.GroupVersionKind)
	for _, fields := range []string{
		`{}`, `{"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{}}}}}`, `{"f:metadata":{"f:finalizers":{".":{},"v:\"x\"":{}}}}`,
		`{"f:spec":{"f:nodeSelector":{"f:a":{}}},"i:3":{},"x:":{},".":{}}`, `{"f:b":{},"f:a":{}}`, `{"k:{":{}}`, `[]`, `{"f:a":{"f:a":null}}`,
	} {
		f.Add("m", "Apply", "v1", "FieldsV1", "", fields)
		f.Add("b", "Update", "v1", "FieldsV1", "status", fields)
	}
	f.Fuzz(func(t *testing.T, manager, operation, version, kind, sub, fields string) {
		entry := metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationType(operation), APIVersion: version, FieldsType: kind, Subresource: sub}
		if fields != "" {
			entry.FieldsV1 = &metav1.FieldsV1{Raw: []byte(fields)}
		}
		if !json.Valid([]byte(fields)) || !utf8.ValidString(manager+sub+fields) {
			t.Skip("no decoder accepts it")
		}
		live := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "u"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		next := live.DeepCopy()
		next.Spec.Containers[0].Image, next.Finalizers = "j", []string{"x"}
		next.ManagedFields = []metav1.ManagedFieldsEntry{entry, {Manager: "b", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{}}`)}}}
		w := managed.Write{Manager: "b", APIVersion: "v1", Untracked: managed.Without(), Pair: func(in string) (p managed.Pair, err error) {
			if in == "v1" {
				p = managed.Pair{Type: typ, Old: reflect.ValueOf(live).Elem(), New: reflect.ValueOf(next).Elem()}
			}
			return p, nil
		}}
		got, err := w.Fields(nil, next.ManagedFields)
		if version != "v1" || err != nil {
			return // upstream's converter of this test has one version
		}
		want := next.DeepCopy()
		for _, obj := range []*corev1.Pod{live, want} {
			obj.SetGroupVersionKind(k.GroupVersionKind)
		}
		theirs.UpdateNoErrors(live, want, "b")
		next.ManagedFields = got
		if entries(want) != entries(next) {
			t.Errorf("upstream:\n%s\nhere:\n%s", entries(want), entries(next))
		}
	})
}
