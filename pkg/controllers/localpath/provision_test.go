package localpath

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/volumebinding"
)

func storage(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

func newClaim() *corev1.PersistentVolumeClaim {
	class := "local-path"
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "1", ResourceVersion: "7", Annotations: map[string]string{
			volumebinding.Provisioner: volumebinding.LocalPath, volumebinding.SelectedNode: "a",
		}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: storage("1Gi")},
		},
	}
}

func newClass() *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "local-path"}, Provisioner: volumebinding.LocalPath, VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}
}

func newNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{volumebinding.LocalPath: "/var/lib/kubelet/local-path"}},
		Status:     corev1.NodeStatus{Capacity: corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("10Gi")}},
	}
}

type world struct {
	claim *corev1.PersistentVolumeClaim
	class *storagev1.StorageClass
	node  *corev1.Node
}

func (p plan) String() string {
	var out []string
	if p.Create != nil {
		out = append(out, "create "+p.Create.Name)
	}
	if p.Reschedule {
		out = append(out, "reschedule")
	}
	if p.Refuse != "" {
		out = append(out, p.Refuse)
	}
	return strings.Join(out, ": ")
}

func TestDecide(t *testing.T) {
	mode := func(m corev1.PersistentVolumeAccessMode) func(*world) {
		return func(w *world) { w.claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{m} }
	}
	for name, tc := range map[string]struct {
		reason string
		change func(*world)
		want   string
	}{
		"Selected":   {reason: "the volume is made where the scheduler puts the first pod", change: func(*world) {}, want: "create pvc-1"},
		"Exclusive":  {reason: "one pod of one node", change: mode(corev1.ReadWriteOncePod), want: "create pvc-1"},
		"Shared":     {reason: "a directory is on one node", change: mode(corev1.ReadWriteMany), want: "access mode ReadWriteMany is not supported: the volume is a directory of one node (ReadWriteOnce, ReadWriteOncePod)"},
		"ReadOnly":   {reason: "the same", change: mode(corev1.ReadOnlyMany), want: "access mode ReadOnlyMany is not supported: the volume is a directory of one node (ReadWriteOnce, ReadWriteOncePod)"},
		"Block":      {reason: "a directory is no device", change: func(w *world) { w.claim.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }, want: "volumeMode Block is not supported"},
		"Selector":   {reason: "volumes that are made have no labels", change: func(w *world) { w.claim.Spec.Selector = &metav1.LabelSelector{} }, want: "spec.selector is not supported"},
		"Clone":      {reason: "nothing copies data", change: func(w *world) { w.claim.Spec.DataSource = &corev1.TypedLocalObjectReference{} }, want: "spec.dataSource is not supported"},
		"Parameters": {reason: "unknown parameters are refused, not ignored", change: func(w *world) { w.class.Parameters = map[string]string{"path": "/data"} }, want: `storage class "local-path" has parameters: the provisioner has none`},
		"Mount":      {reason: "the same for mount options", change: func(w *world) { w.class.MountOptions = []string{"ro"} }, want: `storage class "local-path" has mountOptions: a directory is not mounted`},
		"Unselected": {reason: "the scheduler is about to select a node", change: func(w *world) { delete(w.claim.Annotations, volumebinding.SelectedNode) }, want: ""},
		"Immediate": {reason: "without a pod there is no node", change: func(w *world) {
			delete(w.claim.Annotations, volumebinding.SelectedNode)
			w.class.VolumeBindingMode = nil
		}, want: `storage class "local-path" needs volumeBindingMode WaitForFirstConsumer: the volume is on the node of its first pod`},
		"NodeGone":   {reason: "another node may do", change: func(w *world) { w.node = nil }, want: `reschedule: node "a" does not exist`},
		"OtherNode":  {reason: "a node with another kubelet", change: func(w *world) { w.node.Annotations = nil }, want: `reschedule: the kubelet of node "a" does not serve local-path volumes`},
		"TooLarge":   {reason: "another node may have a larger disk", change: func(w *world) { w.claim.Spec.Resources.Requests = storage("11Gi") }, want: `reschedule: the claim requests 11Gi, the disk of node "a" has 10Gi`},
		"NoClass":    {reason: "the class may come back", change: func(w *world) { w.class = nil }, want: ""},
		"OtherClass": {reason: "the class has changed since the claim was annotated", change: func(w *world) { w.class.Provisioner = "other" }, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{newClaim(), newClass(), newNode()}
			tc.change(w)
			if diff := cmp.Diff(tc.want, decide(w.claim, w.class, w.node).String()); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestVolumesAreOnTheirNode(t *testing.T) {
	got := decide(newClaim(), newClass(), newNode()).Create
	want := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "podium.dev/local-path"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: storage("1Gi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: "local-path",
			VolumeMode: new(corev1.PersistentVolumeFilesystem), PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "ns", Name: "data", UID: "1", ResourceVersion: "7"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/var/lib/kubelet/local-path/pvc-1"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}},
			}}}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if home := volumebinding.Home(got); home != "a" {
		t.Errorf("its home is %q", home)
	}
}
