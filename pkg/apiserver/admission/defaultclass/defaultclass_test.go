package defaultclass_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/admissiontest"
	"podium/pkg/apiserver/admission/defaultclass"
)

// meta returns the metadata of a class that is that many seconds old.
func meta(name string, old int, annotations ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1000-int64(old), 0)), Annotations: map[string]string{}}
	for _, a := range annotations {
		m.Annotations[a] = "true"
	}
	return m
}

const (
	storageDefault = "storageclass.kubernetes.io/is-default-class"
	ingressDefault = "ingressclass.kubernetes.io/is-default-class"
)

func TestStorageClassOfNewClaims(t *testing.T) {
	none := admissiontest.Objects{"storageclasses/a": &storagev1.StorageClass{ObjectMeta: meta("a", 0)}}
	several := admissiontest.Objects{
		"storageclasses/a": &storagev1.StorageClass{ObjectMeta: meta("a", 9, storageDefault)},
		"storageclasses/b": &storagev1.StorageClass{ObjectMeta: meta("b", 1, "storageclass.beta.kubernetes.io/is-default-class")},
		"storageclasses/c": &storagev1.StorageClass{ObjectMeta: meta("c", 1, storageDefault)},
		"storageclasses/d": &storagev1.StorageClass{ObjectMeta: meta("d", 0)},
	}
	for name, row := range map[string]struct {
		reason  string
		objects admissiontest.Objects
		claim   corev1.PersistentVolumeClaim
		want    string // "-": no class
	}{
		"NoDefault":  {reason: "no class is marked", objects: none, want: "-"},
		"Newest":     {reason: "the first by name of the newest that are marked", objects: several, want: "b"},
		"Named":      {reason: "the user has chosen", objects: several, claim: corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("x")}}, want: "x"},
		"NamedEmpty": {reason: "the user wants none", objects: several, claim: corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("")}}, want: ""},
		"Annotation": {reason: "an old way to choose", objects: several, claim: corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.BetaStorageClassAnnotation: "x"}}}, want: "-"},
	} {
		a := &admission.Attributes{Operation: admission.Create, Resource: corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), Object: &row.claim}
		err := admission.Chain{defaultclass.Storage(admission.Host{Objects: row.objects})}.Admit(t.Context(), a, nil)
		got := "-"
		if c := row.claim.Spec.StorageClassName; c != nil {
			got = *c
		}
		if err != nil || got != row.want {
			t.Errorf("%s: %s: class %q, want %q, error %v", name, row.reason, got, row.want, err)
		}
	}
}

func TestClassOfNewIngresses(t *testing.T) {
	objects := admissiontest.Objects{"ingressclasses/a": &networkingv1.IngressClass{ObjectMeta: meta("a", 0, ingressDefault)}}
	fresh := &networkingv1.Ingress{}
	annotated := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"kubernetes.io/ingress.class": "x"}}}
	for _, i := range []*networkingv1.Ingress{fresh, annotated} {
		a := &admission.Attributes{Operation: admission.Create, Resource: networkingv1.SchemeGroupVersion.WithResource("ingresses"), Object: i}
		if err := (admission.Chain{defaultclass.Ingress(admission.Host{Objects: objects})}).Admit(t.Context(), a, nil); err != nil {
			t.Fatal(err)
		}
	}
	if c := fresh.Spec.IngressClassName; c == nil || *c != "a" || annotated.Spec.IngressClassName != nil {
		t.Errorf("classes %v and %v", c, annotated.Spec.IngressClassName)
	}
}
