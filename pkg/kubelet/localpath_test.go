package kubelet

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"podium/pkg/client"
	"podium/pkg/client/clienttest"
	"podium/pkg/kubelet/cri/crifake"
	"podium/pkg/kubelet/volumes"
	"podium/pkg/scheme"
	"podium/pkg/volumebinding"
)

// The kubelet removes the directories of its own volumes that are being deleted, also if
// they were deleted while it did not run; no others: not those of volumes that are bound,
// that are to be retained, or that the API does not know.
func TestDirectoriesOfDeletedVolumesAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, api, root := t.Context(), clienttest.New(), t.TempDir()
		api.Fields = func(obj scheme.Object) fields.Set {
			if v, ok := obj.(*corev1.PersistentVolume); ok {
				return fields.Set{volumebinding.HomeField: volumebinding.Home(v)}
			}
			return nil
		}
		pvs := client.For[*corev1.PersistentVolume](api.Client(t))
		dir := func(name string) string { return filepath.Join(volumes.LocalPathRoot(root), name) }
		here := func(name string) bool {
			_, err := os.Stat(filepath.Join(dir(name), "data"))
			return err == nil
		}
		volume := func(name, home string, deleted bool) *corev1.PersistentVolume {
			v := &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{
					Name: name, Finalizers: []string{"kubernetes.io/pv-protection", volumebinding.LocalPath},
					Annotations: map[string]string{volumebinding.ProvisionedBy: volumebinding.LocalPath},
				},
				Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased},
				Spec: corev1.PersistentVolumeSpec{
					PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
					NodeAffinity:                  volumebinding.OnNode(home), PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir(name)}},
				},
			}
			if deleted {
				v.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			}
			return v
		}
		for _, name := range []string{"early", "late", "live", "abroad", "bound", "retained", "unknown"} {
			if err := os.MkdirAll(filepath.Join(dir(name), "data"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		bound, retained := volume("bound", "n1", true), volume("retained", "n1", true)
		bound.Status.Phase = corev1.VolumeBound
		retained.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		for _, v := range []*corev1.PersistentVolume{
			volume("early", "n1", true), volume("late", "n1", false), volume("live", "n1", false), volume("abroad", "n2", true), bound, retained,
		} {
			if _, err := pvs.Create(ctx, v); err != nil {
				t.Fatal(err)
			}
		}
		stop := run(t, hollow(t, api, "n1", crifake.New(crifake.Config{}), root))
		defer func() { stop() }()
		after(time.Second)
		late, err := pvs.Get(ctx, "late")
		if err == nil {
			late.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			_, err = pvs.Update(ctx, late)
		}
		if err != nil {
			t.Fatal(err)
		}
		after(time.Second)
		type state struct{ here, held bool }
		for name, want := range map[string]state{
			"early": {}, "late": {}, "live": {true, true}, "abroad": {true, true}, "bound": {true, true}, "retained": {true, false},
		} {
			v, err := pvs.Get(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			if got := (state{here(name), volumebinding.Held(v)}); got != want || len(v.Finalizers) == 0 {
				t.Errorf("%s: %+v, want %+v, finalizers %v", name, got, want, v.Finalizers)
			}
		}
		if !here("unknown") {
			t.Error("a directory was removed whose volume the API does not know")
		}
		n, err := client.For[*corev1.Node](api.Client(t)).Get(ctx, "n1")
		if err != nil || n.Annotations[volumebinding.LocalPath] != volumes.LocalPathRoot(root) {
			t.Errorf("the node says %v, %v", n.Annotations, err)
		}
	})
}
