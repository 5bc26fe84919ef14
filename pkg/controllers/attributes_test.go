package controllers_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// A VolumeAttributesClass that is deleted stays while a claim or a volume names it.
func TestUsedAttributesClassIsKept(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		classes := client.For[*storagev1.VolumeAttributesClass](c.Client)
		gone := func() bool {
			_, err := classes.Get(context.Background(), "gold")
			return apierrors.IsNotFound(err)
		}
		create(c, &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, DriverName: "csi.example.com", Parameters: map[string]string{"iops": "1"}})
		c.until(time.Minute, "the class has the finalizer", func() bool {
			class, err := classes.Get(context.Background(), "gold")
			return err == nil && slices.Contains(class.Finalizers, "kubernetes.io/vac-protection")
		})
		create(c, claimOf("data", "1Gi", "", func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeAttributesClassName = new("gold") }))
		create(c, volumeOf("disk", "1Gi", "other", func(v *corev1.PersistentVolume) {
			v.Spec.VolumeAttributesClassName = new("gold")
			v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: "disk"}}
		}))
		remove[*storagev1.VolumeAttributesClass](c, "gold", metav1.DeletePropagationBackground)
		kept := func(why string) {
			t.Helper()
			if time.Sleep(time.Minute); gone() {
				t.Fatalf("the class is gone: %s", why)
			}
		}
		kept("a claim and a volume name it")
		remove[*corev1.PersistentVolumeClaim](c, "data", metav1.DeletePropagationBackground)
		kept("a volume names it")
		remove[*corev1.PersistentVolume](c, "disk", metav1.DeletePropagationBackground)
		c.until(time.Minute, "the class goes", gone)
		c.quiet()
	})
}
