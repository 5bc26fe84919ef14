package claimresize_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/admissiontest"
	"podium/pkg/apiserver/admission/claimresize"
)

func TestClaimsGrow(t *testing.T) {
	objects := admissiontest.Objects{
		"storageclasses/elastic": &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "elastic"}, AllowVolumeExpansion: new(true)},
		"storageclasses/rigid":   &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "rigid"}},
	}
	claim := func(class, size string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "c"},
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}},
			Status: corev1.PersistentVolumeClaimStatus{Phase: phase},
		}
	}
	const prefix = `persistentvolumeclaims "c" is forbidden: `
	const rigid = prefix + "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
	for name, row := range map[string]struct {
		class, size string
		phase       corev1.PersistentVolumeClaimPhase
		want        string
	}{
		"Same":     {"rigid", "1Gi", corev1.ClaimPending, ""},
		"Grows":    {"elastic", "2Gi", corev1.ClaimBound, ""},
		"NotBound": {"elastic", "2Gi", corev1.ClaimPending, prefix + "Only bound persistent volume claims can be expanded"},
		"Rigid":    {"rigid", "2Gi", corev1.ClaimBound, rigid},
		"NoClass":  {"", "2Gi", corev1.ClaimBound, rigid},
		"Gone":     {"gone", "2Gi", corev1.ClaimBound, rigid},
	} {
		a := &admission.Attributes{Operation: admission.Update, Resource: corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), Name: "c",
			Object: claim(row.class, row.size, row.phase), Old: claim(row.class, "1Gi", row.phase)}
		err := admission.Chain{claimresize.New(admission.Host{Objects: objects})}.Admit(t.Context(), a, nil)
		if got := text(err); got != row.want {
			t.Errorf("%s: %s, want %s", name, got, row.want)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
