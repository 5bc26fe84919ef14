package noderestriction_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/admissiontest"
	"podium/pkg/apiserver/admission/noderestriction"
	"podium/pkg/apiserver/request"
	"podium/pkg/volumebinding"
)

func TestNodesChangeOnlyTheirFinalizerOfVolumes(t *testing.T) {
	finalizers := func(f ...string) func(*corev1.PersistentVolume) {
		return func(v *corev1.PersistentVolume) { v.Finalizers = f }
	}
	const ours, protection = volumebinding.LocalPath, "kubernetes.io/pv-protection"
	for name, row := range map[string]struct {
		home     string
		old, new func(*corev1.PersistentVolume)
		want     string // "": allowed
	}{
		"Add":         {home: "a", old: finalizers(protection), new: finalizers(protection, ours)},
		"Remove":      {home: "a", old: finalizers(ours), new: finalizers()},
		"OfOthers":    {home: "b", old: finalizers(ours), new: finalizers(), want: `node "a" can only update persistentvolumes that are confined to it`},
		"Unconfined":  {home: "", old: finalizers(ours), new: finalizers(), want: `node "a" can only update persistentvolumes that are confined to it`},
		"Protection":  {home: "a", old: finalizers(protection, ours), new: finalizers(ours), want: `node "a" can only add and remove the finalizer podium.dev/local-path of persistentvolumes`},
		"NewForeign":  {home: "a", old: finalizers(), new: finalizers("example.com/forever"), want: `node "a" can only add and remove the finalizer podium.dev/local-path of persistentvolumes`},
		"Path":        {home: "a", old: finalizers(), new: func(v *corev1.PersistentVolume) { v.Spec.Local.Path = "/etc" }, want: `node "a" can only update finalizers of persistentvolumes`},
		"Annotations": {home: "a", old: finalizers(), new: func(v *corev1.PersistentVolume) { v.Annotations = map[string]string{"a": "b"} }, want: `node "a" can only update finalizers of persistentvolumes`},
		"Move":        {home: "a", old: finalizers(), new: func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity = volumebinding.OnNode("b") }, want: `node "a" can only update finalizers of persistentvolumes`},
		"Claim":       {home: "a", old: finalizers(), new: func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil }, want: `node "a" can only update finalizers of persistentvolumes`},
	} {
		t.Run(name, func(t *testing.T) {
			v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", ResourceVersion: "1"}, Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/data"}}, ClaimRef: &corev1.ObjectReference{Name: "c"},
			}}
			if row.home != "" {
				v.Spec.NodeAffinity = volumebinding.OnNode(row.home)
			}
			row.old(v)
			next := v.DeepCopy()
			next.ResourceVersion = "2"
			row.new(next)
			a := &admission.Attributes{
				Operation: admission.Update, Resource: corev1.SchemeGroupVersion.WithResource("persistentvolumes"), Name: v.Name, Old: v, Object: next,
				User: &request.User{Name: "system:node:a", Groups: []string{"system:nodes"}},
			}
			err := noderestriction.New(admission.Host{Objects: admissiontest.Objects{}}).Mutate(t.Context(), a)
			if (err == nil) != (row.want == "") || err != nil && !strings.HasSuffix(err.Error(), row.want) {
				t.Errorf("%v, want %q", err, row.want)
			}
		})
	}
}
